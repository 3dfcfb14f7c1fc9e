"""What is shipped for operators: units, a container, and a study as an ordinary user on a read-only root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.ports import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
USER = 10_001
ALONE = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=1777 none {data}
{reachable}
cp -r {example} {data}/example && chown -R {user} {data}/example
mount -o remount,bind,ro /
! touch {python_home}/written 2> /dev/null
cd {data}/example
exec setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs --bounding-set=-all \
    env HOME={data} TMPDIR={data} PYTHONDONTWRITEBYTECODE=1 {python} -m colonnade run STUDY.toml --json
"""


def reachable(data):
    """Lines that let another user reach the interpreter, where it lies in a folder that is closed to others."""
    base = Path(sys.base_prefix).resolve()
    closed = [folder for folder in reversed(base.parents) if not folder.stat().st_mode & 0o001]
    if not closed:
        return ""
    lines = [f"mkdir {data}/base", f"mount --bind {base} {data}/base", f"mount -t tmpfs -o mode=755 none {closed[0]}"]
    return "\n".join([*lines, f"mkdir -p {base}", f"mount --bind {data}/base {base}"])


def run_alone(folder, data):
    """Run a study as an ordinary user, who can write to one folder."""
    script = ALONE.format(
        reachable=reachable(data), data=data, example=folder, user=USER, python=sys.executable, python_home=sys.prefix
    )
    return subprocess.run(["unshare", "--mount", "bash", "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_valid_and_hardened(unit):
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    other = [line for line in checked.stderr.splitlines() if unit.name in line and "is not executable" not in line]
    assert not other, other
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "offline" in rated.stderr:
        pytest.skip("this systemd cannot rate a unit that is not loaded")
    assert rated.returncode == 0, rated.stdout[-400:]


def test_the_compose_file_runs_a_hub_and_three_parties_without_privileges():
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())
    services = content["services"]
    assert set(services) == {"hub", "bank", "shop", "clinic"}
    expected = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
    for service in services.values():
        assert service.items() >= expected.items()
        assert [mount.split(":")[1] for mount in service["volumes"]] == ["/data"]
    assert [name for name, service in services.items() if service.get("ports")] == ["hub"]
    image = (DEPLOY / "container" / "Containerfile").read_text().splitlines()
    assert {"USER 10001", 'ENTRYPOINT ["colonnade"]'} <= set(image)


@pytest.mark.system
def test_a_study_runs_as_an_ordinary_user_on_a_read_only_root(tmp_path):
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        pytest.skip("only root can make a read-only root and become another user")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("there are no mount namespaces here")
    folder = Path(shutil.copytree(DEPLOY.parent / "examples" / "three-organisations", tmp_path / "example"))
    for table in folder.glob("*/*.csv"):  # a few people: what is shown is that it runs
        head, *people = table.read_text().splitlines(keepends=True)
        table.write_text("".join([head, *sorted(people)[:400]]))
    study = folder / "STUDY.toml"
    study.write_text(re.sub(r"127\.0\.0\.1:[0-9]+", f"127.0.0.1:{free_port()}", study.read_text()))
    subprocess.run(
        [sys.executable, "-m", "colonnade", "init", "trial", "STUDY.toml"], cwd=folder, check=True, capture_output=True
    )
    with tempfile.TemporaryDirectory() as place:  # the folders above that of a test are closed to others
        os.chmod(place, 0o755)  # noqa: S103
        ran = run_alone(folder, Path(place))
    assert ran.returncode == 0, ran.stderr[-800:]
    assert '"status": "finished"' in ran.stdout or "report" in ran.stdout
