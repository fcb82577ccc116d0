"""The package as golem finds it."""

from importlib.metadata import entry_points


def test_golem_finds_the_package():
    found = [each for each in entry_points(group="golem") if each.name == "krea2"]
    assert [each.value for each in found] == ["golem_krea2.plugin"]
    assert found[0].load().__name__ == "golem_krea2.plugin"
