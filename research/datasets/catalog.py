"""How the named data sets are laid out: who holds which column, under which public bounds.

Bounds and lists come from the documentation of each data set (codebooks, top codes, counter widths), rounded
to what one would say aloud. They are constants: loading a data set looks at no value to choose them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from colonnade.tables.columns import Column, Number, category, flag, number


@dataclass(frozen=True)
class Layout:
    """Columns by party, and which of them is the label."""

    description: str
    parties: Mapping[str, Mapping[str, Column]]
    label: str


def _words(text: str) -> list[str]:
    return text.split()


def _share() -> Number:
    return number(0, 1, scale="unit")


def _count(high: float, unit: str = "") -> Number:
    return number(0, high, unit=unit, scale="unit", transform="log1p")


# The documentation prints the range of each measure; rounded: (mean, standard error, worst).
_CELL_RANGES = {
    "radius": ((5, 30), (0, 3), (5, 40)),
    "texture": ((5, 40), (0, 5), (10, 50)),
    "perimeter": ((40, 200), (0, 22), (50, 260)),
    "area": ((100, 2500), (0, 550), (150, 4300)),
    "smoothness": ((0.05, 0.17), (0, 0.035), (0.05, 0.25)),
    "compactness": ((0, 0.35), (0, 0.15), (0, 1.1)),
    "concavity": ((0, 0.45), (0, 0.4), (0, 1.3)),
    "concave points": ((0, 0.2), (0, 0.055), (0, 0.3)),
    "symmetry": ((0.1, 0.3), (0, 0.08), (0.15, 0.7)),
    "fractal dimension": ((0.05, 0.1), (0, 0.03), (0.05, 0.21)),
}


def _cells(place: int, pattern: str) -> dict[str, Column]:
    return {pattern.format(name): number(*ranges[place]) for name, ranges in _CELL_RANGES.items()}


BREAST_CANCER = Layout(
    "Breast Cancer Wisconsin (Diagnostic): 569 tumours, 30 measures of cell nuclei",
    {
        "clinic": {**_cells(0, "mean {}"), "malignant": flag()},
        "laboratory": _cells(1, "{} error"),
        "hospital": _cells(2, "worst {}"),
    },
    "clinic.malignant",
)

_WORK_CLASSES = _words("Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov Without-pay")
_MARITAL = _words("""
    Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated Widowed
""")
_OCCUPATIONS = _words("""
    Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners Machine-op-inspct
    Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support Transport-moving
""")
_RELATIONS = _words("Husband Not-in-family Other-relative Own-child Unmarried Wife")
_RACES = _words("Amer-Indian-Eskimo Asian-Pac-Islander Black Other White")
_COUNTRIES = _words("""
    Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France Germany Greece
    Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica Japan Laos
    Mexico Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland South
    Taiwan Thailand Trinadad&Tobago United-States Vietnam Yugoslavia
""")

# Left out: fnlwgt, a survey weight, and education, which education-num repeats.
ADULT = Layout(
    "Adult: 48,842 people of the 1994 US census; does somebody earn more than 50,000 dollars?",
    {
        "registry": {
            "age": number(17, 90, unit="years"),
            "female": flag(),
            "marital-status": category(_MARITAL),
            "relationship": category(_RELATIONS),
            "race": category(_RACES),
            "native-country": category(_COUNTRIES, missing="none"),
        },
        "employer": {
            "workclass": category(_WORK_CLASSES, missing="none"),
            "education-num": number(1, 16, unit="years"),
            "occupation": category(_OCCUPATIONS, missing="none"),
            "hours-per-week": number(0, 100, unit="hours"),
        },
        "tax-office": {
            "capital-gain": _count(100_000, "dollars"),
            "capital-loss": _count(5_000, "dollars"),
            "high-income": flag(),
        },
    },
    "tax-office.high-income",
)

_MONTHS = range(1, 7)
_STATUS_MONTHS = (0, 2, 3, 4, 5, 6)
CREDIT_DEFAULT = Layout(
    "Default of credit card clients: 30,000 clients in Taiwan, 2005; who defaults next month?",
    {
        "registry": {
            "AGE": number(18, 80, unit="years"),
            "female": flag(),
            "EDUCATION": category(range(7)),
            "MARRIAGE": category(range(4)),
        },
        "bank": {
            "LIMIT_BAL": number(0, 1_000_000, unit="NT dollars", scale="unit"),
            **{f"BILL_AMT{month}": _count(1_000_000, "NT dollars") for month in _MONTHS},
            "default": flag(),
        },
        "payments": {
            **{f"PAY_{month}": number(-2, 8, unit="months late") for month in _STATUS_MONTHS},
            **{f"PAY_AMT{month}": _count(1_000_000, "NT dollars") for month in _MONTHS},
        },
    },
    "bank.default",
)

DUTCH_CENSUS = Layout(
    "Dutch virtual census 2001: 60,420 people; does somebody have a high-level occupation?",
    {
        "municipality": {
            "female": flag(),
            "age": number(4, 15, unit="bands of five years"),
            "household_position": category((1110, 1121, 1122, 1131, 1132, 1140, 1210, 1220)),
            "household_size": category((111, 112, 113, 114, 125, 126)),
            "marital_status": category(range(1, 5)),
        },
        "immigration": {
            "prev_residence_place": category((1, 2)),
            "citizenship": category((1, 2, 3)),
            "country_birth": category((1, 2, 3)),
        },
        "employer": {
            "edu_level": number(0, 5),
            "economic_status": category((111, 112, 120)),
            "cur_eco_activity": category((111, 122, 124, *range(131, 140))),
            "high-level": flag(),
        },
    },
    "employer.high-level",
)

# Major groups of the 2018 census occupation codes, by the first code of each.
OCCUPATION_GROUPS = {
    **{"management": 0, "business": 500, "finance": 800, "computing": 1005, "engineering": 1305},
    **{"science": 1600, "community": 2001, "law": 2100, "education": 2205, "arts": 2600, "medicine": 3000},
    **{"care": 3600, "protection": 3700, "food": 4000, "cleaning": 4200, "personal": 4330, "sales": 4700},
    **{"office": 5000, "farming": 6005, "construction": 6200, "extraction": 6800, "repair": 7000},
    **{"production": 7700, "transport": 9005, "military": 9800},
}
BIRTH_REGIONS = {
    **{"state": 0, "territory": 60, "europe": 100, "asia": 200, "north-america": 300, "central-america": 303},
    **{"caribbean": 321, "south-america": 360, "africa": 400, "oceania": 500},
}

ACS_INCOME = Layout(
    "ACSIncome 2018, Colorado and Nebraska: does somebody earn more than 50,000 dollars?",
    {
        "registry": {
            "AGEP": number(17, 99, unit="years"),
            "female": flag(),
            "MAR": category(range(1, 6)),
            "RELP": category(range(18)),
            "RAC1P": category(range(1, 10)),
            "birth-region": category(tuple(BIRTH_REGIONS)),
        },
        "school": {"SCHL": number(1, 24, unit="level")},
        "employer": {
            "COW": category(range(1, 10)),
            "occupation-group": category(tuple(OCCUPATION_GROUPS)),
            "WKHP": number(0, 99, unit="hours"),
            "high-income": flag(),
        },
    },
    "employer.high-income",
)

# The 70 services of NSL-KDD and "icmp", which only the test rows of KDD-99 name.
_SERVICES = _words("""
    IRC X11 Z39_50 aol auth bgp courier csnet_ns ctf daytime discard domain domain_u echo eco_i ecr_i efs exec
    finger ftp ftp_data gopher harvest hostnames http http_2784 http_443 http_8001 icmp imap4 iso_tsap klogin
    kshell ldap link login mtp name netbios_dgm netbios_ns netbios_ssn netstat nnsp nntp ntp_u other pm_dump
    pop_2 pop_3 printer private red_i remote_job rje shell smtp sql_net ssh sunrpc supdup systat telnet tftp_u
    tim_i time urh_i urp_i uucp uucp_path vmnet whois
""")
_CLOSINGS = _words("OTH REJ RSTO RSTOS0 RSTR S0 S1 S2 S3 SF SH")
_RATES = ("serror", "rerror")
_HOST_RATES = _words("same_srv diff_srv same_src_port srv_diff_host serror srv_serror rerror srv_rerror")

# The three groups are those of the KDD Cup's own task description. Left out: num_outbound_cmds, always zero.
# Byte and event counters range over many orders of magnitude: logarithms, which are as public as the bounds.
_KDD_PARTIES: dict[str, dict[str, Column]] = {
    "connection": {
        "duration": _count(60_000, "seconds"),
        "protocol_type": category(("icmp", "tcp", "udp")),
        "service": category(_SERVICES),
        "flag": category(_CLOSINGS),
        "src_bytes": _count(2_000_000_000, "bytes"),
        "dst_bytes": _count(2_000_000_000, "bytes"),
        "land": flag(),
        "wrong_fragment": number(0, 3, scale="unit"),
        "urgent": number(0, 3, scale="unit"),
        "attack": flag(),
    },
    "content": {
        "hot": _count(100),
        "num_failed_logins": number(0, 5, scale="unit"),
        "logged_in": flag(),
        "num_compromised": _count(10_000),
        "root_shell": flag(),
        "su_attempted": number(0, 2, scale="unit"),
        "num_root": _count(10_000),
        "num_file_creations": _count(100),
        "num_shells": number(0, 5, scale="unit"),
        "num_access_files": number(0, 10, scale="unit"),
        "is_host_login": flag(),
        "is_guest_login": flag(),
    },
    "traffic": {
        "count": number(0, 511, scale="unit"),
        "srv_count": number(0, 511, scale="unit"),
        **{f"{srv}{rate}_rate": _share() for rate in _RATES for srv in ("", "srv_")},
        **{f"{rate}_rate": _share() for rate in ("same_srv", "diff_srv", "srv_diff_host")},
        "dst_host_count": number(0, 255, scale="unit"),
        "dst_host_srv_count": number(0, 255, scale="unit"),
        **{f"dst_host_{rate}_rate": _share() for rate in _HOST_RATES},
    },
}
NSL_KDD = Layout("NSL-KDD: 148,517 connections; which are attacks?", _KDD_PARTIES, "connection.attack")
KDD_99 = Layout("KDD Cup 1999, 10 %: 805,050 connections, attacks or not", _KDD_PARTIES, "connection.attack")

CITESEER_WORDS = 3_703
_SITES = ("library", "publisher", "archive")


def citeseer_words() -> list[str]:
    """The word columns' names."""
    return [f"word{place:04d}" for place in range(CITESEER_WORDS)]


def citeseer() -> Layout:
    """CiteSeer's words, a third of the dictionary each."""
    words, third = citeseer_words(), -(-CITESEER_WORDS // 3)
    parties: dict[str, dict[str, Column]] = {
        site: {word: flag() for word in words[place * third : (place + 1) * third]} for place, site in enumerate(_SITES)
    }
    parties["library"]["topic"] = category(range(6))
    return Layout("CiteSeer: 3,312 papers, 3,703 words, six topics", parties, "library.topic")
