"""The message flows of the protocols, each as a list of arrows; three owners keep the seats of the committee.

Participants follow the protocol, and members are known. What differs in active mode, or where members are hidden, is
told on the pages. The arrows are those of ``programs.py`` of each protocol, in ``protocols/`` and in the folders of
kinds.
"""

from __future__ import annotations

from .sequence import Arrow, Flow, Loop, Note

OWNERS = ("bank", "shop", "clinic")
OTHERS = ("shop", "clinic")
HUB, ANALYST = "coordinator", "analyst"
EVERYONE = (*OWNERS, HUB)
_SEATED = (("bank", "owner, seat"), ("shop", "owner, seat"), ("clinic", "owner, seat"), (HUB, "relay"))
_READ = (*_SEATED, (ANALYST, "reads"))
_UNSEATED = (("bank", "has the label"), ("shop", "owner"), ("clinic", "owner"), (HUB, "relay"))

_SAME_ROWS = (
    Arrow("plain", ("bank",), OTHERS, "a salt"),
    Arrow("masked", OWNERS, (HUB,), "salted digest of the ids, and their number"),
    Arrow("plain", (HUB,), OWNERS, "whether all lists are equal"),
    Arrow("masked", OWNERS, OWNERS, "the owners compare it once more themselves"),
)


def _released(what: str) -> tuple[Arrow, Arrow]:
    """The end of a release: own sums and noise are dealt, and the sum of all is opened."""
    return (
        Arrow("shares", OWNERS, OWNERS, "shares of own sums plus own noise"),
        Arrow("noisy", OWNERS, EVERYONE, f"shares of the noisy {what}: opened, once"),
    )


ALIGNMENT = Flow(
    "alignment",
    "Alignment with mode ot: who is on all lists?",
    (("bank", "leads"), ("shop", "owner"), ("clinic", "owner"), (HUB, "relay")),
    (
        Arrow("plain", OWNERS, (HUB,), "the length of each list"),
        Arrow("plain", (HUB,), OWNERS, "who leads: the shortest list"),
        Arrow("plain", OWNERS, OWNERS, "a key of each two, for shares that cancel"),
        Arrow("masked", ("bank",), OTHERS, "oblivious transfers: its list under masks"),
        Arrow("plain", OTHERS, ("bank",), "a challenge: was that one list?"),
        Arrow("masked", ("bank",), OTHERS, "sums that answer it"),
        Arrow("masked", OTHERS, ("bank",), "a store of shares under tags and pads"),
        Note(("bank",), "looks its people up: shares cancel for those on all lists"),
        Arrow("plain", ("bank",), OTHERS, "which of their people these are"),
        Arrow("plain", ("bank",), (HUB,), "how many they are"),
        Arrow("plain", (HUB,), OWNERS, "enough, or the study ends"),
        Arrow("masked", OWNERS, OWNERS, "were all told the same people?"),
    ),
)
MOMENTS = Flow(
    "moments",
    "One release of second moments: PCA and regressions",
    _READ,
    (
        *_SAME_ROWS,
        Loop(
            "for each block of rows",
            (
                Arrow("shares", OWNERS, OWNERS, "shares of rows, scaled and rounded at random"),
                Note(OWNERS, "multiply shares of columns of different owners, and add them up"),
            ),
        ),
        *_released("moments"),
        Note(EVERYONE, "components or weights follow from the noisy moments alone"),
        Arrow("noisy", (HUB,), (ANALYST,), "model.json, privacy.json"),
    ),
)
GRADIENTS = Flow(
    "gradients",
    "Rounds of gradients: logistic regression by sqm",
    _READ,
    (
        *_SAME_ROWS,
        Arrow("plain", ("bank",), OTHERS, "a secret that says who is in which batch"),
        Arrow("shares", OWNERS, OWNERS, "shares of rows and labels, once"),
        Arrow("shares", OWNERS, OWNERS, "shares of own noise, many rounds ahead"),
        Loop(
            "in each round",
            (
                Note(OWNERS, "compute the gradient of a batch on shares"),
                Arrow("noisy", OTHERS, ("bank",), "shares of the noisy gradient: opened"),
                Arrow("noisy", ("bank",), OTHERS, "the noisy gradient: all take a step"),
            ),
        ),
        Arrow("noisy", ("bank",), (HUB,), "the weights, an average of the last half of the rounds"),
        Arrow("noisy", (HUB,), (ANALYST,), "model.json, privacy.json"),
    ),
)
MESSAGES = Flow(
    "glm",
    "A generalised linear model over noised messages",
    _UNSEATED,
    (
        *_SAME_ROWS,
        Arrow("plain", ("bank",), (*OTHERS, HUB), "a random name of this fit"),
        Loop(
            "in each step",
            (
                Arrow("noisy", ("bank",), OTHERS, "slopes of its loss, the same to all, with its noise"),
                Arrow("plain", ("bank",), (*OTHERS, HUB), "whether there is another step"),
                Note(OTHERS, "each updates its own weights"),
                Arrow("noisy", OTHERS, ("bank",), "scores of their rows, each with its own noise"),
            ),
        ),
        Arrow("plain", OWNERS, OWNERS, "digests: were all told the same slopes?"),
        Note(OWNERS, "each keeps its own weights; nothing is published"),
        Loop(
            "only with release = true",
            (Arrow("noisy", OWNERS, EVERYONE, "weights of each owner, with its own noise"),),
        ),
    ),
)
SPLIT_COMMITTEE = Flow(
    "split-committee",
    "A split network whose head comes from a committee",
    (("bank", "label, seat"), *_READ[1:]),
    (
        *_SAME_ROWS,
        Note(OWNERS, "each embeds its own rows; encoders never leave"),
        Loop(
            "for each block of rows",
            (
                Arrow("shares", OWNERS, OWNERS, "shares of embeddings, and of the label"),
                Note(OWNERS, "multiply and add up on shares"),
            ),
        ),
        *_released("moments"),
        Note(EVERYONE, "fit the head to the noisy moments"),
        Arrow("noisy", (HUB,), (ANALYST,), "model.json, privacy.json"),
    ),
)
SPLIT_EMBEDDINGS = Flow(
    "split-embeddings",
    "A split network over told embeddings",
    _UNSEATED,
    (
        *_SAME_ROWS,
        Loop(
            "only where encoders learn (training)",
            (
                Arrow("plain", ("bank",), OTHERS, "labels; with label_epsilon, answered at random"),
                Note(OTHERS, "train encoders by noised updates, which are sent to nobody"),
            ),
        ),
        Loop(
            'with training = "rounds", for each batch',
            (
                Arrow("noisy", OTHERS, ("bank",), "embeddings of the batch, clipped, with own noise"),
                Arrow("noisy", ("bank",), OTHERS, "slopes, made of told numbers alone"),
            ),
        ),
        Loop(
            "otherwise, once",
            (Arrow("noisy", OTHERS, ("bank",), "embeddings of everybody, clipped, with own noise"),),
        ),
        Note(("bank",), "fits the head with its own columns and labels, and keeps it"),
    ),
)
MARGINALS = Flow(
    "synthetic-marginals",
    "Synthetic data from marginals",
    _READ,
    (
        *_SAME_ROWS,
        Loop(
            "for each block of rows",
            (
                Arrow("shares", OWNERS, OWNERS, "shares of columns, written as codes"),
                Note(OWNERS, "multiply and add up: counts by pairs and triples of columns"),
            ),
        ),
        *_released("counts"),
        Note(EVERYONE, "fit a model to the noisy counts, and draw made-up people from it"),
        Arrow("noisy", (HUB,), (ANALYST,), "the made-up table and its card"),
    ),
)
MIXTURE = Flow(
    "synthetic-mixture",
    "Synthetic data from the rounds of a mixture",
    _READ,
    (
        *_SAME_ROWS,
        Arrow("plain", ("bank",), OTHERS, "a secret that says who is in which batch"),
        Arrow("shares", OWNERS, OWNERS, "shares of statistics of rows, once, and of noise ahead"),
        Loop(
            "in each round",
            (
                Arrow("shares", OWNERS, OWNERS, "shares of densities, and of derivatives if these are summed"),
                Note(OWNERS, "multiply, divide and add up: who fits which component is seen by nobody"),
                Arrow("noisy", OTHERS, ("bank",), "shares of the noisy sums: opened"),
                Arrow("noisy", ("bank",), OTHERS, "the noisy sums: all take a step"),
            ),
        ),
        Arrow("noisy", ("bank",), (*OTHERS, HUB), "the fitted mixture"),
        Arrow("noisy", (HUB,), (ANALYST,), "the made-up table and its card"),
    ),
)
PREDICTION = Flow(
    "joint-prediction",
    "Joint prediction for the bank, with an epsilon",
    (("bank", "may know, seat"), *_SEATED[1:]),
    (
        *_SAME_ROWS,
        Note(OWNERS, "each computes its own part of every score"),
        Loop(
            'with answers = "noise"',
            (
                Arrow("shares", OTHERS, OWNERS, "shares of their parts plus own noise"),
                Note(OWNERS, "add up the parts of shop and clinic on shares"),
                Arrow("noisy", OTHERS, ("bank",), "shares of the noisy sum: the bank alone opens it"),
            ),
        ),
        Loop(
            'or, with answers = "levels"',
            (Arrow("noisy", OTHERS, ("bank",), "a level of each part, answered at random"),),
        ),
        Note(("bank",), "adds its own part; nobody else sees a score"),
    ),
)
POLYNOMIALS = Flow(
    "polynomials",
    "Sums of polynomials",
    _READ,
    (
        *_SAME_ROWS,
        Note(OWNERS, "each computes its own factor of every monomial"),
        Loop(
            "for each block of rows",
            (
                Arrow("shares", OWNERS, OWNERS, "shares of the factors"),
                Note(OWNERS, "multiply factors of different owners, and add up"),
            ),
        ),
        *_released("sums"),
        Arrow("noisy", (HUB,), (ANALYST,), "model.json, privacy.json"),
    ),
)
LANES = Flow(
    "lanes",
    "A study in lanes: many partitions, one release",
    (("bank", "head, workers"), ("shop", "head, workers"), ("clinic", "head, workers"), (HUB, "head, workers")),
    (
        Arrow("plain", ("bank",), OTHERS, "the key by which people are spread"),
        Note(OWNERS, "each splits its own table into partitions"),
        Loop(
            "for each partition, many at a time: workers in a lane",
            (
                Arrow("masked", EVERYONE, EVERYONE, "align the partition, lists filled up"),
                Arrow("shares", OWNERS, OWNERS, "shares of rows of the common people"),
                Note(OWNERS, "multiply and add up; a lane opens nothing"),
                Arrow("plain", OWNERS, (HUB,), "the sums are held here, or the lane was lost"),
                Arrow("plain", (HUB,), OWNERS, "it counts, or it is run again"),
            ),
        ),
        Arrow("plain", OWNERS, OWNERS, "digests: do all hold the same runs?"),
        *_released("sums of all lanes"),
    ),
)
FLOWS = (
    ALIGNMENT, MOMENTS, GRADIENTS, MESSAGES, SPLIT_COMMITTEE, SPLIT_EMBEDDINGS, MARGINALS, MIXTURE, PREDICTION,
    POLYNOMIALS, LANES,
)  # fmt: skip
