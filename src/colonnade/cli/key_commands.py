"""The commands about a member's own key: a new certificate, a passphrase, and calling a key back."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.membership import whose_key
from colonnade.cli.output import Json, emit, say
from colonnade.disk import reading
from colonnade.errors import ConnectError, FederationError, IdentityError, without_code
from colonnade.federation.hub_protocol import FederationClient
from colonnade.federation.members import FederationMembers, RevokedKeys
from colonnade.federation.notices import Renewal, Revocation
from colonnade.models.serialization import replace_private
from colonnade.randomness import new_key as random_key
from colonnade.wire import Identity
from colonnade.wire.identity import IDENTITY_DAYS, PASSPHRASE, name_in_keyring, open_keyring

Config = Annotated[Path, typer.Argument(metavar="FILE", help="A party's own file, or an analyst's FEDERATION.toml.")]
Key = Annotated[Path | None, typer.Option("--key", help="An analyst's private key.")]


def renew(
    config: Config,
    key: Key = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="How long it is good.")] = IDENTITY_DAYS,
    json: Json = False,
) -> None:
    """Make a new certificate of the same key, and have the hub tell the others."""
    ours, place, own = _own(config, key)
    held = place.with_name(f"{place.stem}.next.key")
    if not held.exists():  # else an earlier try was broken off, and the hub may have heard of it
        replace_private(held.with_suffix(".crt"), (made := own.renewed(days)).certificate.pem)
        replace_private(held, made.file_pem)
    fresh = Identity.load(held, held.with_suffix(".crt"))
    with FederationClient(ours, own) as line:
        try:
            line.give_notice(Renewal(own.name, fresh.certificate, datetime.now(UTC)))
        except (IdentityError, ConnectError):  # unless the hub knows it already, this is an error too
            with FederationClient(ours, fresh) as again:
                again.members()
    with FederationMembers.changing(ours.path) as now:
        now.renewed(fresh.certificate, own.name).put(own.name)
    os.replace(held.with_suffix(".crt"), place.with_suffix(".crt"))
    os.replace(held, place)
    facts = {
        "name": own.name,
        "pin": fresh.fingerprint,
        "until": f"{fresh.certificate.parsed.not_valid_after_utc:%Y-%m-%d}",
    }
    emit(facts) if json else say(f"{own.name} has the certificate {fresh.fingerprint}, good until {facts['until']}")


def protect(
    key: Annotated[Path, typer.Argument(metavar="KEY", help="A private key; its certificate lies beside it.")],
    ring: Annotated[bool, typer.Option("--keyring", help="Draw one, and keep it in the system's keyring.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the passphrase off.")] = False,
    json: Json = False,
) -> None:
    """Put a passphrase on a private key, or take it off."""
    chosen = os.environ.get(PASSPHRASE, "")  # before the one of now is asked for
    own, given = Identity.load(key, key.with_suffix(".crt")), bool(chosen)
    if ring:
        if (library := open_keyring()) is None:
            raise IdentityError("the system's keyring needs `pip install keyring` [ID782]")
        library.set_password(*name_in_keyring(key), chosen := random_key().hex())
    elif not given and not remove:
        chosen = getpass(f"new passphrase of {key}: ")
        if not chosen or getpass("again: ") != chosen:
            raise IdentityError(f"{key} stays as it was: no passphrase was given, or not the same one twice [ID783]")
    chosen = "" if remove else chosen
    replace_private(key, own.protected(chosen.encode() or None).file_pem)
    emit({"key": str(key), "encrypted": bool(chosen)}) if json else say(
        f"{key} is {'encrypted now' if chosen else 'not encrypted any more'}"
    )


def revoke(
    config: Config,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Whose key is no good: our own name, another's, or an earlier pin."),
    ] = None,
    key: Key = None,
    notice: Annotated[
        Path | None, typer.Option("--notice", metavar="FILE", help="What a member has signed about its own key.")
    ] = None,
    json: Json = False,
) -> None:
    """Call our own key back, or ask for another's to be called back."""
    ours, _, own = _own(config, key)
    raw, left, heard = b"", notice, None
    where, keys = f"no member of the federation in {ours.path}", dict[str, str]()
    keys |= {each.fingerprint: each.key_fingerprint for each in ours.former}
    keys |= {each.name: each.key_fingerprint for each in ours.certificates.values()}
    keys[own.name] = own.certificate.key_fingerprint  # the one that signs, also where another took its place
    if notice is not None:
        try:
            said, _ = Revocation.unpack_earlier(raw := reading.read_bytes(notice, Revocation.largest), ours)
        except reading.UnreadableFile as error:
            raise FederationError(f"{notice} cannot be read: {error} [FE804]") from None
        where, keys, name = f"not {said.member}, who signed {notice}", {said.member: said.key}, name or said.member
    if name is None or name not in keys:
        raise FederationError(f"{name or 'nobody'} is {where}: name a member, or give --notice FILE alone [FE784]")
    if left is None and name == own.name:
        raw = Revocation(name, keys[name], datetime.now(UTC)).pack(own)
        replace_private(left := ours.path.parent / f"{name}.revocation", raw)
    with FederationMembers.changing(ours.path):
        known, more = RevokedKeys.load(ours.path.parent), {keys[name]}
        asked = (
            replace(known, wanted=known.wanted | more) if left is None else replace(known, revoked=known.revoked | more)
        )
        asked.save(ours.path.parent)
        os.utime(ours.path)
    if left is None:
        told = "it counts for nothing here from now on; for the others once enough signers have said the same"
    else:
        try:
            with FederationClient(ours, own) as line:
                line.give_notice(raw)
            heard, told = True, f"the hub has confirmed it and passes it on. {left} is the signed notice"
        except (IdentityError, ConnectError, FederationError) as error:
            why = without_code(str(error))
            heard, told = False, f"the hub has not confirmed it ({why}). {left} is the signed notice"
            if notice is None:
                raise FederationError(
                    f"nobody has confirmed that the key of {name} is called back: {told}: try again, and hand it to "
                    f"the others, who run `colonnade keys revoke PARTY.toml --notice {left.name}` [FE805]"
                ) from None
        told += ": hand it on to whoever should not wait for the hub" + ("" if notice else ", and join with a new key")
    facts = {"revoked": name, "key": keys[name], "confirmed_by_hub": heard, "notice": left and str(left)}
    emit(facts) if json else say(f"the key of {name} is called back: {told}")


def _own(config: Path, key: Path | None) -> tuple[FederationMembers, Path, Identity]:
    """The members that we know, and our key."""
    path, own = whose_key(config, key)
    if own is None:
        raise FederationError("name a party's own file, or FEDERATION.toml and --key YOUR.key [FE785]")
    return FederationMembers.load(path), own[1], Identity.load(own[1], own[1].with_suffix(".crt"))
