"""A table of one's own (``dataset=csv``): what is declared, what is read, and what is refused."""

from __future__ import annotations

import gzip
import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedpriv.common.errors import ArgumentError, DataError
from fedpriv.data.federated import federate
from fedpriv.data.own_table import DECLARED, OwnTable
from fedpriv.data.partitions import Iid, Natural

ROWS = "user,age,sex,income\nb,25,f,low\na,50,m,high\na,150,f,low\nc,-5,m,high\nc,75,f,low\n"
AGE, SEX = {"age": [0, 100]}, {"sex": ["f", "m"]}


@pytest.fixture
def table(tmp_path):
    """Make a data set of a file's content; ``rows`` may be bytes or arrays."""

    def make(rows: object = ROWS, name: str = "people.csv", **settings: object) -> OwnTable:
        path = tmp_path / name
        if isinstance(rows, dict):
            np.savez(path, **rows)
        else:
            path.write_bytes(rows if isinstance(rows, bytes) else str(rows).encode())
        given = {"label": "income", "ranges": AGE, "categories": SEX} | settings
        if given.get("test_path") == "the same":  # tables so small that no coin may say test
            given["test_path"] = str(path)
        return OwnTable(path=str(path), **given)

    return make


def records(dataset: OwnTable) -> dict[tuple[float, ...], int]:
    """Inputs → target, of training and test records together."""
    loaded = dataset.load()
    return {
        tuple(row.flatten().tolist()): int(target)
        for part in (loaded.train, loaded.test)
        for row, target in zip(part.inputs, part.targets, strict=True)
    }


def sides_of(dataset: OwnTable) -> list[tuple[str, float, int]]:
    """The side, first input and target of each record."""
    loaded = dataset.load()
    return [
        (side, float(row.flatten()[0]), int(target))
        for side, part in (("train", loaded.train), ("test", loaded.test))
        for row, target in zip(part.inputs, part.targets, strict=True)
    ]


# ---- records as numbers


def test_numbers_are_scaled_by_their_range_and_categories_are_one_hot(table):
    assert records(table()) == {
        (0.25, 1, 0): 1, (0.5, 0, 1): 0, (1, 1, 0): 1, (0, 0, 1): 0, (0.75, 1, 0): 1,
    }  # fmt: skip


def test_other_records_never_change_a_record(table):
    one, other = records(table()), records(table(ROWS + "d,1e9,f,low\n"))
    assert one.items() <= other.items()


def test_values_outside_a_range_are_set_to_its_bound_and_nothing_says_how_many(table):
    dataset = table()
    assert dataset.load().train.inputs[:, 0].max() <= 1
    assert not any(character.isdigit() for character in DECLARED)
    assert not any("outside" in note for note in dataset.notes)


def test_one_range_is_that_of_all_other_columns(table):
    dataset = table(
        "p,q,y\n1,2,0\n3,4,1\n5,6,0\n",
        label="y",
        ranges=[0, 10],
        categories=None,
        test_path="the same",
    )
    assert dataset.input_shape == (2,)
    assert (np.float32(0.1), np.float32(0.2)) in records(dataset)


def test_declared_labels_give_the_order_of_the_classes(table):
    assert records(table(labels=["low", "high"]))[0.25, 1, 0] == 0
    assert table(labels=["low", "middle", "high"]).classes == 3


def test_labels_that_were_read_are_named_as_an_assumption(table):
    read, stated = table().caveats, table(labels=["low", "high"]).caveats
    assert DECLARED in read
    assert DECLARED in stated
    assert [caveat for caveat in read if "dataset.labels" in caveat]
    assert not [caveat for caveat in stated if "dataset.labels" in caveat]


def test_labels_that_are_numbers_are_sorted_as_numbers(table):
    rows = "x,y\n1,10\n2,9\n3,10\n4,9\n"
    dataset = table(rows, label="y", ranges={"x": [0, 4]}, categories=None, test_path="the same")
    assert records(dataset)[0.25,] == 1


def test_columns_that_are_declared_nowhere_are_named_in_the_plan(table):
    assert any("not used" in note and "user" in note for note in table().notes)


def test_spaces_at_the_ends_of_texts_are_left_out(table):
    plain = records(table())
    assert records(table(ROWS.replace("f,", " f ,").replace("high", '" high "'))) == plain
    assert records(table(categories={"sex": [" f", "m "]})) == plain


def test_an_empty_category_may_be_declared(table):
    rows = "x,job,y\n1,,0\n2,a,1\n3,,0\n"
    dataset = table(rows, label="y", ranges={"x": [0, 4]}, categories={"job": ["", "a"]})
    assert records(dataset)[0.25, 1, 0] == 0


# ---- test records


def test_the_split_follows_from_its_own_seed_alone(table):
    rows = "x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(50))
    settings = {"label": "y", "ranges": {"x": [0, 50]}, "categories": None}
    one, same, other = (table(rows, **settings, split_seed=seed) for seed in (0, 0, 1))
    tests = [set(d.load().test.inputs.flatten().tolist()) for d in (one, same, other)]
    assert tests[0] == tests[1] != tests[2]
    assert one.train_records + one.test_records == 50
    assert 3 <= one.test_records <= 20


def test_one_more_record_changes_the_side_of_no_other(table):
    rows = [f"{i},{i % 2}" for i in range(50)] + ["7,1", "7,1"]  # three records are equal
    settings = {"label": "y", "ranges": {"x": [0, 100]}, "categories": None}
    sides = Counter(sides_of(table("\n".join(["x,y", *rows]), **settings)))
    for place in (0, 20, len(rows)):
        for more in ("60,0", "7,1"):
            extended = ["x,y", *rows[:place], more, *rows[place:]]
            other = Counter(sides_of(table("\n".join(extended), **settings)))
            assert sides <= other
            assert other.total() == sides.total() + 1


def test_one_more_user_changes_the_side_of_no_other(table):
    rows = "u,x,y\n" + "".join(f"u{i // 5},{i // 5},{i % 2}\n" for i in range(50))
    settings = {"label": "y", "user": "u", "ranges": {"x": [0, 100]}, "categories": None}
    one, other = (table(rows + more, **settings) for more in ("", "a,60,0\nu3,3,1\n"))
    assert set(sides_of(one)) <= set(sides_of(other))


def test_the_number_of_test_records_is_about_their_share(table):
    rows = "x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(2000))
    settings = {"label": "y", "ranges": {"x": [0, 2000]}, "categories": None}
    assert 340 < table(rows, **settings).test_records < 460


def test_a_user_s_records_are_all_training_or_all_test_records(table):
    rows = "u,x,y\n" + "".join(f"u{i // 5},{i // 5},{i % 2}\n" for i in range(50))
    dataset = table(rows, label="y", user="u", ranges={"x": [0, 10]}, categories=None)
    loaded = dataset.load()
    train, test = (set(part.inputs.flatten().tolist()) for part in (loaded.train, loaded.test))
    assert train
    assert test
    assert not train & test
    assert len(np.unique(loaded.client_ids)) == len(train)


def test_test_records_may_come_from_a_file_with_columns_in_another_order(table, tmp_path):
    (tmp_path / "test.csv").write_text("sex,income,age\nm,low,10\n")
    dataset = table(test_path=str(tmp_path / "test.csv"))
    assert (dataset.train_records, dataset.test_records) == (5, 1)
    assert dataset.load().test.inputs.tolist() == [[pytest.approx(0.1), 0, 1]]


def test_a_test_file_without_a_column_is_refused(table, tmp_path):
    (tmp_path / "test.csv").write_text("p,y\n1,0\n")
    with pytest.raises(DataError, match=r"test\.csv has no column q"):
        table(
            "p,q,y\n1,2,0\n3,4,1\n5,6,0\n", label="y", ranges=[0, 10], categories=None,
            test_path=str(tmp_path / "test.csv"),
        )  # fmt: skip


# ---- formats


def test_a_compressed_table_is_read(table):
    compressed = table(gzip.compress(ROWS.encode()), "people.csv.gz")
    assert records(compressed) == records(table())


def test_arrays_of_npz_keep_their_shape(table):
    images = np.full((5, 4, 4), 255, dtype=np.uint8)
    dataset = table(
        {"x": images, "income": np.array([0, 1, 0, 1, 0])}, "images.npz",
        ranges={"x": [0, 255]}, categories=None, test_path="the same",
    )  # fmt: skip
    assert dataset.input_shape == (1, 4, 4)
    assert dataset.load().train.inputs.unique().tolist() == [1.0]


def test_columns_of_npz_may_be_numbers_and_texts(table):
    columns = {
        "age": np.array([25, 50, 75]), "sex": np.array(["f", "m", "f"]),
        "income": np.array([1.0, 0.0, 1.0]),
    }  # fmt: skip
    dataset = table(columns, "people.npz", labels=[0, 1], test_path="the same")
    assert records(dataset)[0.25, 1, 0] == 1


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_parquet_is_read(table, tmp_path):
    import pandas as pd

    pd.read_csv(table().path).to_parquet(tmp_path / "people.parquet")
    content = (tmp_path / "people.parquet").read_bytes()
    assert records(table(content, "people.parquet")) == records(table())


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_parquet_without_its_package_says_what_to_install(table):
    with pytest.raises(DataError, match=r"pip install pyarrow"):
        table("", "people.parquet")


# ---- what is refused

REFUSED = {
    "empty": ("", {}, "is empty"),
    "header_alone": ("user,age,sex,income\n", {}, "no records"),
    "duplicate": ("age,age,income\n1,2,low\n", {}, "two columns named age"),
    "nameless": ("age,,income\n1,2,low\n", {}, "column 2 has no name"),
    "text_in_numbers": (
        ROWS.replace("50", "old"),
        {},
        r"line 3: age .*\(old\).*dataset\.ranges\.age",
    ),
    "nan": (ROWS.replace("50", "nan"), {}, "line 3: age is missing"),
    "missing": (ROWS.replace("50", ""), {}, "line 3: age is missing"),
    "infinite": (ROWS.replace("50", "inf"), {}, "line 3: age is not finite"),
    "other_category": (ROWS.replace("m,", "x,"), {}, r"line 3: sex is x.*\(f, m\)"),
    "one_label": (ROWS.replace("high", "low"), {}, "every label in income is low"),
    "no_label": (ROWS.replace("high", ""), {}, r"line 3: income .* missing"),
    "no_user": (ROWS.replace("b,", ","), {"user": "user"}, r"line 2: user .* missing"),
    "other_label": (
        ROWS,
        {"labels": ["low", "middle"]},
        r"line 3: income is high.*\(low, middle\)",
    ),
    "long_row": (ROWS + "a,1,f,low,9\n", {}, "line 7: 5 fields where the header has 4"),
    "long_rows": ("age,income\n1,low,3\n2,high,3\n", {}, "header differ in length"),
    "not_text": (b"\xff\xfe\x00", {}, "UTF-8"),
    "few_records": (
        "age,sex,income\n1,f,low\n2,m,high\n",
        {},
        r"dataset\.test_share=0\.2.*dataset\.test_path",
    ),
}


@pytest.mark.parametrize(("rows", "settings", "words"), REFUSED.values(), ids=REFUSED)
def test_bad_records_are_refused_with_file_and_place(table, rows, settings, words):
    with pytest.raises(DataError, match=rf"people\.csv.*{words}"):
        table(rows, **settings)


def test_a_bad_cell_is_named_by_its_line_after_blank_lines_and_cells_of_two_lines(table):
    rows = 'note,age,sex,income\n\n"a\nb",1,f,low\n  \n"c\nd",2,m,high\ne,old,f,low\n'
    for name, content in (("a.csv", rows.encode()), ("a.csv.gz", gzip.compress(rows.encode()))):
        with pytest.raises(DataError, match=r"line 8: age is not a number \(old\)"):
            table(content, name)


def test_text_in_a_number_is_told_where_text_is_declared_only_if_the_column_is_not_named(table):
    rows = "p,q,y\n1,2,0\n3,old,1\n5,6,0\n"
    for ranges, hinted in (([0, 10], True), ({"p": [0, 10], "q": [0, 10]}, False)):
        with pytest.raises(DataError) as caught:
            table(rows, label="y", ranges=ranges, categories=None)
        assert ("dataset.categories" in str(caught.value)) == hinted


def test_a_bad_cell_of_an_array_is_named_by_its_record(table):
    columns = {"age": np.array([25, np.nan, 75]), "income": np.array([1, 0, 1])}
    with pytest.raises(DataError, match="record 2: age is missing"):
        table(columns, "people.npz", categories=None)


SETTINGS = {
    "label": ({"label": "incom"}, r"^label .*did you mean income|^label must be a column"),
    "no_label": ({"label": None}, "^label must be the column"),
    "user": ({"user": "name"}, "^user must be a column"),
    "range": ({"ranges": {"aeg": [0, 1]}}, r"^ranges\.aeg must be a column"),
    "reversed": ({"ranges": {"age": [100, 0]}}, r"^ranges\.age .*low < high.*got \[100, 0\]"),
    "no_width": ({"ranges": [1, 1]}, r"^ranges .*low < high.*got \[1, 1\]"),
    "no_pair": ({"ranges": {"age": 5}}, r"^ranges\.age .*\[low, high\].*got 5"),
    "not_finite": ({"ranges": {"age": [0, float("inf")]}}, r"^ranges\.age"),
    "nothing": ({"ranges": None, "categories": None}, r"^ranges must be .*got null"),
    "both": ({"categories": {"age": [1]}}, r"^categories\.age"),
    "no_mapping": ({"categories": ["sex"]}, r"^categories must be \{COLUMN"),
    "truth": ({"categories": {"sex": [True, False]}}, r"^categories\.sex .*got true"),
    "twice": ({"categories": {"sex": ["f", "f"]}}, r"^categories\.sex .*different"),
    "label_as_input": ({"categories": {"income": ["low"]}}, r"^label .*no input.*got income"),
    "user_as_label": ({"user": "income"}, "^user must be another column"),
    "labels": ({"labels": ["low"]}, "^labels must be a list of two"),
    "share": ({"test_share": 1}, "^test_share must be > 0 and < 1, got 1"),
    "seed": ({"split_seed": -1}, "^split_seed"),
    "validation": ({"validation_share": 1}, r"^validation_share .*< 1, got 1"),
    "validation_twice": (
        {"validation_share": 0.1, "validation_path": "a.csv"},
        "^validation_share must be 0 with",
    ),
    "one_column_twice": ({"user": "user", "client": "user"}, "^client must be another column than"),
    "no_path": ({"path": None}, r"^path must be a file"),
}


@pytest.mark.parametrize(("settings", "words"), SETTINGS.values(), ids=SETTINGS)
def test_bad_settings_name_key_and_value(table, settings, words):
    path = table().path
    given = {"path": path, "label": "income", "ranges": AGE, "categories": SEX} | settings
    with pytest.raises(ArgumentError, match=words):
        OwnTable(**given)


@pytest.mark.parametrize(("name", "words"), [
    ("nowhere.csv", "no such file"), ("table.xls", r"must end in \.csv"), (".", "not a file"),
    ("text.npz", "numpy.savez"),
])  # fmt: skip
def test_a_path_that_is_no_table_is_named(tmp_path, name, words):
    for file in ("table.xls", "text.npz"):
        (tmp_path / file).write_text("x")
    with pytest.raises(DataError, match=rf"cannot read .*{words}"):
        OwnTable(path=str(Path(tmp_path) / name), label="y", ranges=[0, 1])


def test_a_file_that_is_not_there_is_told_before_label_and_ranges_are_asked_for():
    with pytest.raises(DataError, match=r"dataset\.path=nowhere\.csv: there is no such file"):
        OwnTable(path="nowhere.csv")


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ("age;income\n1;low\n", "semicolons"),
        ("age;hours\n1,5;2,0\n", 'decimal=","'),
        ("age\tincome\n1\tlow\n", "tabs"),
        (",age,income\n0,1,low\n", "index=False"),
    ],
)
def test_a_table_with_other_marks_or_an_index_is_told_how_to_write_it(table, rows, word):
    with pytest.raises(DataError, match=word):
        table(rows)


def test_labels_that_are_numbers_or_names_are_asked_about(table):
    measured = "age,sex,income\n" + "".join(f"{i % 50},f,{i / 4}\n" for i in range(300))
    with pytest.raises(ArgumentError) as caught:
        table(measured)
    assert "300 different values in 300 records" in caught.value.hint
    with pytest.raises(ArgumentError) as caught:
        table("age,sex,income\n" + "".join(f"1,f,name{i}\n" for i in range(30)))
    assert "list all of them in dataset.labels" in caught.value.hint
    codes = "age,sex,income\n" + "".join(f"{i % 50},f,{i % 62}\n" for i in range(620))
    assert table(codes).classes == 62
    assert table(measured, labels=[i / 4 for i in range(300)]).classes == 300


def test_a_column_of_very_many_labels_is_refused(table):
    rows = "x,y\n" + "".join(f"1,{i}\n" for i in range(1001))
    with pytest.raises(ArgumentError, match=r"^label .*1000"):
        table(rows, label="y", ranges={"x": [0, 1]}, categories=None)


def test_a_user_of_two_files_is_refused(table, tmp_path):
    """Its records in the test file would be protected by nothing."""
    (tmp_path / "test.csv").write_text("user,age,sex,income\nb,30,f,low\nz,30,m,high\n")
    with pytest.raises(DataError, match=r"1 user of .*people\.csv are in it too, such as b"):
        table(user="user", test_path=str(tmp_path / "test.csv"))


def test_names_and_labels_with_and_without_a_decimal_point_are_the_same(table):
    people = [
        f"{i // 2}{'.0' if i % 2 else ''},{i},f,{i % 2}{'.0' if i % 3 else ''}\n" for i in range(60)
    ]
    dataset = table("user,age,sex,income\n" + "".join(people), user="user")
    assert dataset.words == ("0", "1")
    assert len(set(dataset._table.names["user"])) == 30


# ---- test records of clients

HOSPITALS = "income,age,hospital\n" + "".join(
    f"{'lh'[i % 2]},{i},{'abc'[i % 3]}\n" for i in range(60)
)
BY_HOSPITAL = {"client": "hospital", "categories": None}


def test_test_records_belong_to_the_client_that_holds_them(table):
    dataset = table(HOSPITALS, **BY_HOSPITAL)
    data = federate(dataset, Natural(), validation=False, seed=0)
    ages = (100 * dataset.load().test.inputs[:, 0]).round().long()
    assert data.test_clients.tolist() == (ages % 3).tolist()
    assert federate(dataset, Iid(), validation=False, seed=0).test_clients is None


def test_a_file_of_test_records_may_name_the_client(table, tmp_path):
    (tmp_path / "test.csv").write_text("age,income,hospital\n1,l,c\n2,h,elsewhere\n")
    dataset = table(HOSPITALS, test_path=str(tmp_path / "test.csv"), **BY_HOSPITAL)
    data = federate(dataset, Natural(), validation=False, seed=0)
    assert data.test_clients.tolist() == [2, -1]
    (tmp_path / "test.csv").write_text("age,income\n1,l\n2,h\n")
    dataset = table(HOSPITALS, test_path=str(tmp_path / "test.csv"), **BY_HOSPITAL)
    assert federate(dataset, Natural(), validation=False, seed=0).test_clients is None


def test_where_clients_are_protected_their_test_records_are_of_others(table):
    rows = "".join(f"{'lh'[i % 2]},{i},hospital {i % 20}\n" for i in range(60))
    dataset = table(f"income,age,hospital\n{rows}", **BY_HOSPITAL, test_share=0.5)
    dataset.split_for("client")
    assert federate(dataset, Natural(), validation=False, seed=0).test_clients is None
