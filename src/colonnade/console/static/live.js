// Whatever is marked data-live (and has an id) is loaded anew when the console says that something changed.
"use strict";
(() => {
  const live = () => [...document.querySelectorAll("[data-live][id]")];
  if (!live().length || !("EventSource" in window)) return;
  let loading = false;
  let again = false;
  const refresh = async () => {
    if (loading) { again = true; return; }
    loading = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of live()) {
        const next = fresh.getElementById(old.id);
        // What somebody is typing in or has a finger on stays as it is.
        if (next && !old.contains(document.activeElement) && next.innerHTML !== old.innerHTML) {
          old.replaceChildren(...document.importNode(next, true).childNodes);
        }
      }
    } catch { /* the agent is away; EventSource tries again by itself */ } finally {
      loading = false;
      if (again) { again = false; refresh(); }
    }
  };
  new EventSource("/events").addEventListener("change", refresh);
})();
