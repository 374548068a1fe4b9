"""``stowplan plan`` and ``stowplan cost``: what is printed, exit codes, and one sentence for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from stowplan_agent.cli.cost import cost, placements_of
from stowplan_agent.cli.plan import plan
from stowplan_api.model import ContractError
from stowplan_api.record import CalibrationRecord

RECORDS = Path(__file__).parent.parent / "planning" / "records"
SMALL = RECORDS / "small"

app = typer.Typer()
app.command()(plan)
app.command()(cost)


def run(*arguments: object, stdin: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    return result.exit_code, result.stdout, result.stderr


def one_line(path: Path) -> str:
    return json.dumps(json.loads(path.read_text()))


def test_plan_prints_json() -> None:
    code, out, _ = run("plan", SMALL / "device-03.json", "--output", "json")
    answer = json.loads(out)
    assert code == 0
    assert (answer["kind"], answer["status"], answer["cost"]["feasible"]) == ("Plan", "Optimal", True)
    assert answer["proof"]["status"] == "OPTIMAL" and answer["proof"]["space"]
    assert {"placement", "explanations", "worth", "moves"} <= answer.keys()


def test_plan_prints_a_table() -> None:
    code, out, _ = run("plan", SMALL / "device-03.json")
    assert code == 0
    assert "denoiser" in out and "s a request" in out and "One more GiB" in out


def test_an_infeasible_plan_prints_and_exits_3() -> None:
    code, out, _ = run("plan", SMALL / "infeasible-by-a-byte-01.json", "--output", "json")
    answer = json.loads(out)
    assert code == 3
    assert answer["status"] == "Infeasible" and answer["shortfalls"][0]["shortBytes"] == 1 and answer["wouldFit"]
    code, out, _ = run("plan", SMALL / "device-03.json", "--device-memory", "1Gi")
    assert code == 3 and "would fit" in out


def test_moves_have_from_and_to() -> None:
    code, out, _ = run(
        "plan", SMALL / "moves-02.json", "--current", SMALL / "moves-02.current.json", "--output", "json"
    )
    assert code == 0
    assert all({"component", "from", "to"} <= move.keys() for move in json.loads(out)["moves"])
    assert json.loads(out)["moves"]


def test_what_the_moves_save_is_stated() -> None:
    record, current = SMALL / "moves-02.json", SMALL / "moves-02.current.json"
    answer = json.loads(run("plan", record, "--current", current, "--output", "json")[1])
    assert answer["savedSeconds"] == pytest.approx(answer["currentSeconds"] - answer["cost"]["seconds"])
    assert answer["savedSeconds"] > 0
    assert "this saves" in run("plan", record, "--current", current)[1]
    assert "savedSeconds" not in json.loads(run("plan", record, "--output", "json")[1])


def test_the_best_that_moves_lead_to_says_what_is_lost() -> None:
    record, current = SMALL / "moves-blocked-01.json", SMALL / "moves-blocked-01.current.json"
    code, out, _ = run("plan", record, "--current", current)
    assert code == 0 and "no order of moves from the current placement stays within limits" in out
    assert "nothing moves" in out


def test_several_workloads_each_say_their_seconds(tmp_path: Path) -> None:
    """In the plan, in its table, and in the price of a placement; one that does not fit forbids all."""
    record = json.loads((SMALL / "device-03.json").read_text())
    (name,) = (workload["name"] for workload in record["workloads"])
    record["workloads"].append(record["workloads"][0] | {"name": "long", "weight": 3})
    for each in record["intervals"]:
        each["runs"].append(each["runs"][0] | {"workload": "long", "passes": each["runs"][0]["passes"] * 4})
    path, placement = tmp_path / "record.json", tmp_path / "placement.json"
    path.write_text(json.dumps(record))
    code, out, _ = run("plan", path)
    assert code == 0 and f"Workload {name}: " in out and "Workload long: " in out
    plan = json.loads(run("plan", path, "--output", "json")[1])
    seconds = plan["cost"]["workloadSeconds"]
    weights = {workload["name"]: workload.get("weight", 1) for workload in record["workloads"]}
    average = sum(weights[one] * seconds[one] for one in seconds) / sum(weights.values())
    assert plan["cost"]["seconds"] == pytest.approx(average)
    placement.write_text(json.dumps(plan["placement"]))
    assert json.loads(run("cost", path, placement)[1])["workloadSeconds"] == seconds
    for each in record["intervals"]:
        each["runs"][1]["activationBytes"] = [1 << 40 for _ in record["ranks"]]
    path.write_text(json.dumps(record))
    code, out, _ = run("plan", path)
    assert code == 3 and "would fit: only workload" in out and "without workload long" in out


def test_cost_prints_a_line_for_each_placement(tmp_path: Path) -> None:
    line = one_line(SMALL / "moves-02.current.json")
    file = tmp_path / "placements.jsonl"
    file.write_text(f"{line}\n\n{line}\n")
    code, out, _ = run("cost", SMALL / "moves-02.json", file)
    lines = [json.loads(text) for text in out.splitlines()]
    assert code == 0 and len(lines) == 2
    assert lines[0].keys() == {"feasible", "seconds", "deviceBytes", "lockedBytes", "hostBytes", "violations"}
    code, out, _ = run("cost", SMALL / "moves-02.json", "-", "--host-memory", "1Gi", stdin=line)
    assert code == 0
    assert {one["constraint"] for one in json.loads(out)["violations"]} == {"host", "pinned"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "nowhere.json"), "cannot be read"),
        (("plan", SMALL / "moves-02.current.json"), "field kind: this is a 'Placement'; give a CalibrationRecord"),
        (("plan", SMALL / "moves-02.json", "--current", SMALL / "moves-02.json"), "a 'CalibrationRecord'; give a Pla"),
        (("plan", SMALL / "device-03.json", "--device-memory", "many"), "is not a quantity"),
        (("plan", SMALL / "device-03.json", "--device-memory=-1Gi"), "is negative"),
        (("plan", SMALL / "device-03.json", "--host-memory", "9999Ei"), "out of range"),
        (("plan", SMALL / "device-03.json", "--current", SMALL / "moves-02.current.json"), "component encoder"),
        (("plan", SMALL / "device-03.json", "--device-memory", str((1 << 63) - 1)), "the largest is 64Ti"),
        (("cost", SMALL / "device-03.json", "nowhere.jsonl"), "nowhere.jsonl: cannot be read (No such file"),
        (("cost", SMALL / "device-03.json", SMALL), "cannot be read (Is a directory)"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[object, ...], words: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("{", "line 2: is not JSON"),
        ("[]", "line 2"),
        ("[" * 100_000, "line 2: is not JSON"),
        ("9" * 5000, "line 2: is not JSON"),
        (
            '{"apiVersion":"stowplan.dev/v1alpha1","kind":"Placement","components":[{"name":"vae","mode":"Resident"}]}',
            "vae",
        ),
        ('{"apiVersion":"stowplan.dev/v1alpha1","kind":"Placement","components":[{"name":"e","mode":"Swap"}]}', "mode"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_printed(second: str, words: str) -> None:
    stdin = one_line(SMALL / "moves-02.current.json") + "\n" + second + "\n"
    code, out, err = run("cost", SMALL / "moves-02.json", "-", stdin=stdin)
    assert (code, out) == (2, "")
    assert words in err and "line 2" in err and err.count("\n") == 1


def test_a_plan_is_taken_where_a_placement_is(tmp_path: Path) -> None:
    record, made = SMALL / "moves-02.json", tmp_path / "plan.json"
    made.write_text(run("plan", record, "--output", "json")[1])
    answer = json.loads(made.read_text())
    code, out, _ = run("cost", record, made)
    assert code == 0 and json.loads(out)["seconds"] == answer["cost"]["seconds"]
    code, out, _ = run("plan", record, "--current", made, "--output", "json")
    assert code == 0 and json.loads(out)["moves"] == [] and json.loads(out)["placement"] == answer["placement"]


def test_a_plan_in_which_nothing_fits_has_no_placement(tmp_path: Path) -> None:
    record, made = SMALL / "infeasible-by-a-byte-01.json", tmp_path / "plan.json"
    made.write_text(run("plan", record, "--output", "json")[1])
    for arguments in (("cost", record, made), ("plan", record, "--current", made)):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "") and "this Plan says that nothing fits" in err and err.count("\n") == 1


def test_cost_prints_a_table_on_request(tmp_path: Path) -> None:
    line = one_line(SMALL / "moves-02.current.json")
    file = tmp_path / "placements.jsonl"
    file.write_text(f"{line}\n{line}\n")
    code, out, _ = run("cost", SMALL / "moves-02.json", file, "--output", "table")
    assert code == 0
    assert out.count("yes") == 2 and "device peak" in out
    code, out, _ = run("cost", SMALL / "moves-02.json", file, "--output", "table", "--host-memory", "1Gi")
    assert code == 0 and out.count("no:") == 2


def test_a_closed_standard_input_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ContractError, match="standard input is closed"):
        placements_of(CalibrationRecord.read(SMALL / "moves-02.json"), "-")


@pytest.mark.parametrize("name", ["[/b]", "[red]x", ":smile:", "\\[x]"])
def test_names_are_printed_as_they_are(name: str, tmp_path: Path) -> None:
    record = json.loads((SMALL / "device-03.json").read_text())
    record["model"]["name"] = name
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    code, out, _ = run("plan", path)
    assert code == 0 and f"{name}: " in out
    _, _, err = run("plan", f"{name}.json")
    assert f"stowplan: {name}.json: cannot be read" in err


def test_tables_lose_no_letter_of_a_name(tmp_path: Path) -> None:
    """In 80 columns, as in a pipe."""
    text, name = (SMALL / "device-03.json").read_text(), "encoder_" + "x" * 60
    path = tmp_path / "record.json"
    path.write_text(text.replace('"denoiser"', f'"{name}"'))
    code, out, _ = run("plan", path)
    assert code == 0 and "…" not in out
    assert out.count("x") >= 60
