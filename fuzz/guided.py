"""Fuzzing of one target by coverage, with Atheris: `python fuzz/guided.py "plan text" --minutes 10`.

Atheris is no dependency, for it has no wheels for some systems: `pip install atheris`. It changes bytes and keeps what
reaches new lines of the package, and so finds what the campaign's changes do not, at a tenth of its speed. What fails
goes to the same folder and is replayed by every test run.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["recipe"]):
    import campaign
    from targets import targets


def main() -> None:
    """The command line; libFuzzer ends the process with 77 where something failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", choices=sorted(targets()))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--failures", type=Path, default=campaign.FAILURES, help="folder for inputs that fail")
    given = parser.parse_args()
    target, place = targets()[given.target], Path(tempfile.mkdtemp())
    (place / "corpus").mkdir()
    for number, seed in enumerate(target.seeds):
        (place / "corpus" / str(number)).write_bytes(seed)

    def one(data: bytes) -> None:
        found = campaign.outcome(target, data, place)
        if found.failure is not None:
            kept = campaign.keep(given.failures, given.target, data)
            raise RuntimeError(f"{found.failure}: {kept}")

    signal.signal(signal.SIGPROF, campaign.late)
    options = [
        f"-max_total_time={round(60 * given.minutes)}",
        "-timeout=30",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
    ]
    # its own copy of an input that fails is not needed
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={place}/", str(place / "corpus")], one)
    try:
        atheris.Fuzz()
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
