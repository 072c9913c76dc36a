"""How the page looks and can be used: axe-core, light and dark, 360 pixels, keyboard alone, hostile documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from serve.page.browser import Visit
from serve.page.conftest import EVIL
from serve.page.test_walk import QUERY, SEARCH, WALKED, given

# Each view with what shows that it is complete.
VIEWS = {
    "documents": ("?index=articles", ".hit"),
    "results": (SEARCH, ".hit mark"),
    "weights": (SEARCH + "&mix=1", ".chart svg"),
    "compare": (SEARCH + "&view=compare", ".lines path"),
    "document": (SEARCH + "&view=document&id=braid", ".similar li"),
    "index": ("?index=articles&view=index", ".numbers"),
    "nothing": ("?index=articles&q=who+won+the+football+match+yesterday", ".notice"),
    "wrong filter": ("?index=articles&q=sugar&filter=year+%3E%3D", "#filter[aria-invalid]"),
    "hostile": ("?index=hostile&q=sea", ".hit mark"),
}
SCREENS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}},
}
TUNED = {
    "n_probe": 8, "n_candidates": 4000, "n_code_scored": 900, "n_rescored": 120, "exhaustive": False, "k": 10,
    "target_recall": 0.95, "recall_of": "exact", "recall": 0.963, "codes_recall": None, "median_ms": 2.1,
    "exhaustive_ms": 41.0, "n_queries": 200, "n_passages": 50_000, "date": "2026-01-31",
}  # fmt: skip


@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_serious_and_nothing_overflows(visits: Callable[..., Visit], base: str, screen: str) -> None:
    visit = visits(base, reduced_motion="reduce", **SCREENS[screen])
    findings = {}
    for name, (address, complete) in VIEWS.items():
        visit.open(address, complete)
        if name == "results":
            visit.page.locator("[data-why]").first.click()
            visit.page.locator(".status button").click()
            visit.page.wait_for_selector(".why table")
        findings[name] = [*visit.serious_findings(), *([f"{n} pixels too wide"] if (n := visit.overflow()) > 0 else [])]
    visit.page.keyboard.press("?")
    visit.page.wait_for_selector("dialog[open]")
    findings["help"] = visit.serious_findings()
    assert {name: problems for name, problems in findings.items() if problems} == {}


def test_the_theme_follows_the_system_and_a_choice_is_kept(visits: Callable[..., Visit], base: str) -> None:
    visit = visits(base, color_scheme="dark")
    page = visit.open(SEARCH, ".hit")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    page.wait_for_function("() => document.documentElement.dataset.theme === 'light'")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    page.reload()
    page.wait_for_selector(".hit")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_the_keyboard_alone_is_enough(visit: Visit) -> None:
    page = visit.open("?index=articles", ".hit")
    page.keyboard.press("Escape")  # the box has the focus at the start
    page.keyboard.press("/")
    page.keyboard.type(QUERY)
    expected = [hit["id"] for hit in visit.post(WALKED, {"query": QUERY})["hits"]]
    visit.wait_for_ids(expected)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.dataset.open") == expected[1]
    page.keyboard.press("w")
    page.wait_for_selector(".why table")
    page.keyboard.press("Enter")
    page.wait_for_selector(".similar li")
    assert given(visit)["id"] == [expected[1]]
    page.keyboard.press("Escape")
    visit.wait_for_ids(expected)
    page.keyboard.press("m")
    page.wait_for_selector(".chart svg")
    page.keyboard.press("c")
    page.wait_for_selector(".lines path")
    page.keyboard.press("i")
    page.wait_for_selector(".numbers")


def test_the_tuned_plan_is_a_picture(visit: Visit) -> None:
    def tuned(route: Any) -> None:
        answer = route.fetch()
        fields = {**answer.json(), "tuned": {"params": TUNED}}
        route.fulfill(response=answer, body=json.dumps(fields))

    visit.page.route("**/v1/indexes/articles", tuned)
    page = visit.open("?index=articles&view=index", ".funnel")
    steps = page.locator(".funnel b").all_inner_texts()
    assert steps == ["50,000", "4,000", "900", "120", "10"]
    widths = page.eval_on_selector_all(".funnel-bar", "bars => bars.map(bar => bar.getBoundingClientRect().width)")
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == len(widths)
    labels = [one.get_attribute("aria-label") or "" for one in page.locator(".gauge").all()]
    assert any("96.3 %, asked for 95.0 %" in label for label in labels)
    assert visit.serious_findings() == []


def test_names_in_the_chart_stay_within_it(visit: Visit) -> None:
    page = visit.open("?index=hostile&q=sea&mix=1", ".chart svg")
    over = page.evaluate(
        """() => {
            const edge = document.querySelector('.mix').getBoundingClientRect().right
            return [...document.querySelectorAll('.chart .name')].map(n => n.getBoundingClientRect().right - edge)
        }"""
    )
    assert max(over) <= 0


def test_words_are_whole_on_a_phone(visits: Callable[..., Visit], base: str) -> None:
    visit = visits(base, **SCREENS["phone"])
    page = visit.open("?index=articles&q=sugar&filter=year+%3E%3D", "#filter[aria-invalid]")
    parts = "[...box.querySelectorAll('th, .filter-message'), box]"
    clipped = f"box => {parts}.filter(part => part.scrollWidth > part.clientWidth + 1)"
    assert page.locator("#filter-error").evaluate(f"box => ({clipped})(box).length") == 0
    assert page.locator("#filter-error").inner_text().splitlines()[-1].strip() == "^"
    page = visit.open(SEARCH, "[data-why]")
    page.locator("[data-why]").first.click()
    page.wait_for_selector(".why table")
    assert page.locator(".why").first.evaluate(f"box => ({clipped})(box).map(e => e.textContent)") == []


def test_hostile_documents_are_only_text(visit: Visit) -> None:
    for address, complete in (
        ("?index=hostile&q=sea", ".hit mark"),
        ("?index=hostile&q=sea&view=compare", ".lines path"),
        ("?index=hostile&view=index", ".numbers"),
    ):
        page = visit.open(address, complete)
        page.wait_for_timeout(200)
        assert page.evaluate("window.owned") is None
        assert page.locator("main img, main script, main b:text-is('bold')").count() == 0
    page = visit.open("?index=hostile&q=sea", ".hit mark")
    page.locator("a[data-open]", has_text="Tide").first.click()
    page.wait_for_selector(".document-text")
    assert EVIL in page.locator(".document-text").inner_text()
    assert page.title() != "owned"
    assert {urlsplit(url).netloc for url in visit.requests if not url.startswith("data:")} == {
        urlsplit(visit.base).netloc
    }, "the page asks nobody but its server"
