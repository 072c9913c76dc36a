"""A walk through the page: search, words, weights, comparison, filters, document, index."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

from serve.page.browser import Visit

QUERY = "how are threads crossed to make fabric"
SEARCH = f"?index=articles&q={QUERY.replace(' ', '+')}"
WALKED = "v1/indexes/articles/search"


def given(visit: Visit) -> dict[str, list[str]]:
    """The state in the address of the page."""
    return parse_qs(urlsplit(visit.page.url).query)


def test_results_come_as_one_types(visit: Visit) -> None:
    page = visit.open("?index=articles")
    page.locator("#query").press_sequentially(QUERY, delay=15, timeout=120_000)
    expected = visit.post(WALKED, {"query": QUERY})["hits"]
    visit.wait_for_ids([hit["id"] for hit in expected])
    assert page.locator(".hit-title").first.inner_text() == expected[0]["title"]
    assert given(visit)["q"] == [QUERY]
    n_searches = sum(url.endswith("/search") for url in visit.requests)
    assert n_searches < len(QUERY) / 2, "the page asks after each letter"


def test_a_late_answer_does_not_replace_a_newer_one(visit: Visit) -> None:
    page = visit.open("?index=articles")

    def hold(route: Any) -> None:
        if json.loads(route.request.post_data)["query"] == "bread":
            page.wait_for_timeout(600)
        route.continue_()

    page.route("**/search", hold)
    page.fill("#query", "bread")
    page.wait_for_timeout(150)
    page.fill("#query", "what makes the tides")
    expected = [hit["id"] for hit in visit.post(WALKED, {"query": "what makes the tides"})["hits"]]
    visit.wait_for_ids(expected)
    page.wait_for_timeout(900)
    assert visit.ids() == expected


def test_a_word_of_the_query_shows_the_words_that_it_chose(visit: Visit) -> None:
    page = visit.open(SEARCH, ".query-word")
    matches = visit.post(WALKED, {"query": QUERY, "explain": True})["hits"][0]["explanation"]["multi"]["matches"]
    chosen = next(match["token"] for match in matches if match["query"] == "threads")
    word = page.get_by_role("button", name="threads", exact=True)
    for show in (word.hover, word.focus):
        show()
        lit = page.locator(".hit").first.locator("mark.lit")
        assert lit.all_inner_texts() == [chosen]
        assert re.fullmatch(r"0\.\d\d", lit.get_attribute("data-similarity") or "")
        page.mouse.move(0, 0)
        page.locator("#query").focus()
        assert page.locator(".lit").count() == 0


def test_a_word_of_a_document_shows_the_words_that_chose_it(visit: Visit) -> None:
    page = visit.open(SEARCH, ".query-word")
    matches = visit.post(WALKED, {"query": QUERY, "explain": True})["hits"][0]["explanation"]["multi"]["matches"]
    choosers = {match["query"] for match in matches if match["token"] == "strands"}
    mark = page.locator(".hit").first.locator("mark", has_text="strands")
    mark.hover()
    assert set(page.locator(".query-word.lit").all_inner_texts()) == choosers
    mark.click()
    page.mouse.move(0, 0)
    assert set(page.locator(".query-word.lit").all_inner_texts()) == choosers, "a pressed word stays"
    page.keyboard.press("Escape")
    assert page.locator(".lit").count() == 0


def test_the_colour_of_a_word_follows_its_similarity(visit: Visit) -> None:
    page = visit.open(SEARCH, ".query-word")
    first = page.locator(".hit").first
    strengths = {
        mark.inner_text(): float(mark.evaluate("mark => mark.style.getPropertyValue('--strength')"))
        for mark in first.locator("mark").all()
    }
    assert strengths["cross"] > strengths["strands"]
    backgrounds = {
        mark.evaluate("mark => getComputedStyle(mark).backgroundColor") for mark in first.locator("mark").all()
    }
    assert len(backgrounds) == len(set(strengths.values()))


def test_why_shows_what_each_list_gave(visit: Visit) -> None:
    page = visit.open(SEARCH, "[data-why]")
    page.locator("[data-why]").first.click()
    parts = visit.post(WALKED, {"query": QUERY, "explain": True})["hits"][0]["explanation"]["parts"]
    rows = page.locator(".why table").first.locator("tbody tr").all_inner_texts()
    for part, row in zip(parts, rows, strict=False):
        name, rank, score, share = re.split(r"\s*\t\s*", row)
        assert (name.lower(), int(rank)) == (part["kind"], part["rank"])
        assert (score, share) == (f"{part['score']:.3f}", f"{100 * part['share']:.0f} %")


def test_a_weight_moves_the_ranking(visit: Visit) -> None:
    page = visit.open(SEARCH, "[data-why]")
    before = visit.ids()
    page.get_by_role("button", name="Weights").click()
    slider = page.get_by_role("slider", name="multi")
    slider.focus()
    page.keyboard.press("Home")
    page.get_by_role("slider", name="dense").focus()
    page.keyboard.press("Home")
    page.get_by_role("slider", name="BM25").focus()
    page.keyboard.press("End")
    weights = {"dense": 0, "sparse": 0, "multi": 0, "bm25": 2}
    expected = [hit["id"] for hit in visit.post(WALKED, {"query": QUERY, "params": weights})["hits"]]
    visit.wait_for_ids(expected)
    assert expected != before
    assert page.locator(".hits .moved").count() > 0
    assert given(visit)["weights"] == ["dense:0,sparse:0,multi:0,bm25:2"]
    moved = page.locator(".hits .moved").all_inner_texts()
    page.reload()
    visit.wait_for_ids(expected)
    page.wait_for_selector(".hits .moved")
    assert page.locator(".hits .moved").all_inner_texts() == moved, "a link with weights shows the same moves"
    page.get_by_role("button", name="Reset").click()
    visit.wait_for_ids(before)


def test_the_chart_has_the_ranks_of_each_list(visit: Visit) -> None:
    page = visit.open(SEARCH + "&mix=1", ".chart svg")
    hits = visit.post(WALKED, {"query": QUERY, "explain": True})["hits"]
    titles = page.locator(".chart title").all_text_contents()
    ranks = {part["kind"]: part["rank"] for part in hits[0]["explanation"]["parts"] if part["kind"] != "smoothing"}
    assert titles[0].startswith(hits[0]["title"])
    assert all(f"{kind.replace('bm25', 'BM25')} {rank}" in titles[0] for kind, rank in ranks.items())
    assert len(titles) == len(hits)


def test_a_comparison_draws_a_line_for_each_shared_document(visit: Visit) -> None:
    page = visit.open(SEARCH + "&view=compare&mode=multi&against=bm25", ".lines path")
    lists = [
        [hit["id"] for hit in visit.post(WALKED, {"query": QUERY, "mode": mode})["hits"]] for mode in ("multi", "bm25")
    ]
    assert [visit.ids(".short-hits:not(.right)"), visit.ids(".short-hits.right")] == lists
    lines = page.eval_on_selector_all(
        ".lines path:not(.alone)",
        """paths => paths.map(path => {
            const box = path.getBBox()
            const item = side => document.querySelector(`.short-hits${side} > [data-id="${path.dataset.id}"]`)
            const middle = element => { const r = element.getBoundingClientRect(); return r.top + r.height / 2 }
            return [path.dataset.id, box.height, Math.abs(middle(item(':not(.right)')) - middle(item('.right')))]
        })""",
    )
    assert {line[0] for line in lines} == set(lists[0]) & set(lists[1])
    assert all(abs(height - distance) < 1 for _, height, distance in lines)
    page.get_by_role("button", name="Swap").click()
    visit.wait_for_ids(lists[1], ".short-hits:not(.right)")
    assert (given(visit)["mode"], given(visit).get("against")) == (["bm25"], ["multi"])


def test_a_facet_value_filters(visit: Visit) -> None:
    page = visit.open("?index=articles&q=sugar", ".facet")
    example = (page.locator("#filter").get_attribute("placeholder") or "").removeprefix("Filter, such as ")
    assert visit.post(WALKED, {"query": "sugar", "filter": example})["hits"], "the example of a filter fits the index"
    page.locator(".facet", has_text="medicine").click()
    expected = visit.post(WALKED, {"query": "sugar", "filter": 'topic = "medicine"'})["hits"]
    page.wait_for_selector(".chosen li")
    visit.wait_for_ids([hit["id"] for hit in expected])
    assert len(visit.ids()) == len(expected)
    assert given(visit)["facet"] == ['topic:"medicine"']
    page.locator(".facet", has_text="food").click()
    both = visit.post(WALKED, {"query": "sugar", "filter": 'topic in ("medicine", "food")'})["hits"]
    visit.wait_for_ids([hit["id"] for hit in both])
    page.get_by_role("button", name='Remove topic = "medicine"').click()
    page.wait_for_function("() => document.querySelectorAll('.chosen li').length === 1")


def test_a_wrong_filter_is_shown_and_a_right_one_works(visit: Visit) -> None:
    page = visit.open("?index=articles&q=sugar", ".hit")
    before = visit.ids()
    page.fill("#filter", "year >=")
    page.keyboard.press("Enter")
    page.wait_for_selector("#filter[aria-invalid]")
    assert "expected a value" in page.locator("#filter-error").inner_text()
    assert visit.ids() == before, "the results before stay"
    page.fill("#filter", "year >= 2022")
    page.keyboard.press("Enter")
    expected = visit.post(WALKED, {"query": "sugar", "filter": "year >= 2022"})["hits"]
    page.wait_for_selector("#filter:not([aria-invalid])")
    visit.wait_for_ids([hit["id"] for hit in expected])
    assert page.locator("#filter-error").is_hidden()


def test_a_filter_by_an_unknown_field_says_so(visit: Visit) -> None:
    page = visit.open("?index=articles&q=sugar&filter=yaer+%3D+2020", ".notice")
    assert "did you mean year" in page.locator(".notice").inner_text()


def test_a_document_shows_its_passage_and_similar_documents(visit: Visit) -> None:
    page = visit.open(SEARCH, ".hit-title")
    page.locator(".hit-title").first.click()
    page.wait_for_selector(".similar li")
    document = visit.get("v1/indexes/articles/documents/braid?passages=true")
    assert page.locator("h1").inner_text() == document["title"]
    assert page.locator(".document-text").inner_text() == document["text"]
    assert page.locator(".part.best mark").count() > 0
    similar = [hit["id"] for hit in visit.post("v1/indexes/articles/similar", {"id": "braid", "k": 8})["hits"]]
    assert visit.ids(".similar .short-hits") == similar
    page.go_back()
    page.wait_for_selector(".hits .hit")
    assert visit.page.evaluate("document.activeElement.dataset.open") == "braid", "the focus is where it was"


def test_the_page_of_an_index_has_its_numbers(visit: Visit) -> None:
    page = visit.open("?index=articles&view=index", ".numbers")
    info = visit.get("v1/indexes/articles")
    assert page.locator(".numbers dd").all_inner_texts()[:3] == [
        str(info["documents"]),
        str(info["passages"]),
        str(info["segments"]),
    ]
    assert info["model"] in page.locator(".cards").inner_text()
    calibration = info["calibration"]["usable"]
    threshold = calibration["unrelated_mean"] + 1.645 * calibration["unrelated_deviation"]
    assert f"confident from {threshold:.2f}" in (page.locator(".curve").text_content() or "")


def test_an_index_can_be_chosen(visit: Visit) -> None:
    page = visit.open(SEARCH, ".hit")
    page.select_option("#index", "hostile")
    page.wait_for_function("() => document.querySelector('.status').textContent.startsWith('7 documents')")
    assert given(visit) == {"index": ["hostile"]}
    assert page.input_value("#query") == ""


def test_times_are_a_waterfall(visit: Visit) -> None:
    page = visit.open(SEARCH, ".status button")
    page.locator(".status button").click()
    stages = page.locator(".waterfall .stage").all_inner_texts()
    assert {"encode", "dense", "fuse"} <= set(stages)
    boxes = page.eval_on_selector_all(
        ".waterfall li:not(.inner) .span",
        "bars => bars.map(b => b.getBoundingClientRect()).map(r => [r.left, r.right])",
    )
    assert all(first[0] <= second[0] + 1 for first, second in pairwise(boxes))


def test_a_query_about_nothing_says_so(visit: Visit) -> None:
    page = visit.open("?index=articles&q=who+won+the+football+match+yesterday", ".notice")
    assert "Perhaps nothing here is about that" in page.locator(".notice").inner_text()
    page.get_by_role("button", name="Confident only").click()
    page.wait_for_selector(".notice.empty")
    assert "Nothing here is about that." in page.locator(".notice").inner_text()
    assert visit.ids() == []
    page.get_by_role("button", name="Show the nearest documents").click()
    page.wait_for_selector(".hit")


def test_a_link_shows_the_same_page_and_back_returns(visit: Visit, visits: Callable[..., Visit]) -> None:
    page = visit.open(SEARCH, ".hit")
    first = visit.ids()
    page.select_option("#mode", "bm25")
    page.wait_for_function("() => document.querySelectorAll('.hit .shares').length === 0")
    second = visit.ids()
    other = visits(visit.base)
    other.open(page.url.removeprefix(visit.base), ".hit")
    other.wait_for_ids(second)
    assert other.page.input_value("#mode") == "bm25"
    page.go_back()
    visit.wait_for_ids(first)
    assert page.input_value("#mode") == "hybrid"
    page.go_forward()
    visit.wait_for_ids(second)


def test_more_results_continue_the_ranks(visit: Visit) -> None:
    page = visit.open(SEARCH, ".more button")
    page.get_by_role("button", name="Show more").click()
    page.wait_for_function("() => document.querySelectorAll('.hits > li').length === 20")
    expected = [hit["id"] for hit in visit.post(WALKED, {"query": QUERY, "k": 20})["hits"]]
    assert visit.ids() == expected
    ranks = page.eval_on_selector_all(".hits .rank", "ranks => ranks.map(rank => parseInt(rank.textContent))")
    assert ranks == list(range(1, 21))


def test_a_server_that_stops_is_an_error_that_can_be_tried_again(visit: Visit) -> None:
    page = visit.open(SEARCH, ".hit")
    page.route("**/search", lambda route: route.abort())
    page.fill("#query", "bread")
    page.wait_for_selector(".notice.error")
    assert "does not answer" in page.locator(".notice.error").inner_text()
    page.unroute("**/search")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector(".hit")
    assert page.locator(".notice.error").count() == 0
