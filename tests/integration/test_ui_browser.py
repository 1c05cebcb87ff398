"""The page in a real browser: it renews itself without losing what somebody is at, and says when nobody answers."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import uvicorn
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.store.port import JobSpec, RangeSpec
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.store.postgres.job_lock import JobLock
from runners.millwheel.store.postgres.reader import ReadOnlyStore
from runners.observability.evidence.snapshot import JobSnapshot
from runners.system_clock import SystemClock
from runners.ui.app import make_app
from runners.ui.guard import Access
from tests.integration.test_ui import snapshot
from tests.waiting import until
from tools.browser import chromium, missing

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(bool(missing()), reason=missing() or "there"),
]


@attrs.frozen
class Served:
    """A page that is served."""

    address: str
    dsn: str
    store: PostgresStore
    server: uvicorn.Server
    thread: threading.Thread

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()


@pytest.fixture
def served(store_dsn: str) -> Iterator[Served]:
    with closing(PostgresStore(store_dsn)) as store:
        open_job(store, "scores")
        app = make_app(ReadOnlyStore(store_dsn), SystemClock(), Access(show_keys=True))
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")
        with closing(config.bind_socket()) as listening:
            listening.listen()
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            running = Served(address, store_dsn, store, server, thread)
            yield running
            running.stop()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    with chromium(tmp_path / "profile") as driver:
        yield driver


def open_job(store: PostgresStore, name: str) -> None:
    ranges = [
        RangeSpec(range_id=RangeId("read", 0), split=b"s"),
        RangeSpec(range_id=RangeId("sum", 0), keys=even_ranges(1)[0]),
    ]
    store.open_job(JobSpec(job=name, mode="streaming", fingerprint="f", ranges=ranges))


def errors(browser: Chrome) -> list[str]:
    return [str(each) for each in browser.get_log("browser")]  # type: ignore[no-untyped-call]


def test_it_renews_itself_and_shows_when_nobody_answers(served: Served, browser: Chrome) -> None:
    """New rows come, and what is typed and focused meanwhile stays; nothing breaks the page's own policy."""
    browser.get(f"{served.address}/")
    assert browser.find_element(By.CSS_SELECTOR, "tbody th").text == "scores"
    browser.find_element(By.LINK_TEXT, "scores").click()
    browser.find_element(By.LINK_TEXT, "Windows and keys").click()
    typed = browser.find_element(By.ID, "key")
    typed.send_keys("red")
    shown = browser.find_element(By.CLASS_NAME, "facts").text
    lock = JobLock(served.dsn, "scores")
    lock.hold()
    until(lambda: browser.find_element(By.CLASS_NAME, "facts").text != shown)
    lock.release()
    assert browser.execute_script("return document.activeElement.id") == "key"
    assert typed.get_attribute("value") == "red"

    browser.get(f"{served.address}/jobs")
    browser.execute_script("window.wasLoaded = true")
    open_job(served.store, "sales")
    until(lambda: "sales" in browser.find_element(By.TAG_NAME, "main").text)
    assert browser.execute_script("return window.wasLoaded") is True
    assert errors(browser) == []

    served.stop()
    until(lambda: "no answer" in browser.find_element(By.ID, "connection").text)
    assert "lost" in str(browser.find_element(By.TAG_NAME, "body").get_attribute("class"))


def test_it_is_used_by_keyboard_and_by_its_address(served: Served, browser: Chrome) -> None:
    """A key that was asked for is in the address; text stands out from its ground in both schemes."""
    browser.get(f"{served.address}/jobs/scores/windows?refresh=off")
    browser.find_element(By.ID, "key").send_keys("red\n")
    until(lambda: "key=red" in browser.current_url)
    assert "Key red" in browser.find_element(By.TAG_NAME, "main").text
    browser.get(f"{served.address}/jobs/scores?refresh=off")
    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        least = browser.execute_script(CONTRAST)
        assert least["ratio"] >= 4.5, (scheme, least)


def test_it_fits_a_narrow_window_and_a_telephone(served: Served, browser: Chrome) -> None:
    """Nothing is beside the window but what scrolls by itself, and the stages are not even that."""
    served.store.note_snapshot("scores", crowded().write(), SystemClock().now_us())
    for width in (1280, 400):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for path in ("", "/windows?key=red", "/rows", "/kept", "/ranges", "/workers", "/events"):
            sign = "&" if "?" in path else "?"
            browser.get(f"{served.address}/jobs/scores{path}{sign}refresh=off")
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, (path, wide)
            for each in browser.find_elements(By.CLASS_NAME, "stages"):
                beside = browser.execute_script(
                    "return arguments[0].scrollWidth - arguments[0].parentElement.clientWidth", each
                )
                assert beside <= 0, (width, beside)


def test_everything_that_scrolls_and_is_typed_into_is_reached_and_named(
    served: Served, browser: Chrome
) -> None:
    browser.get(f"{served.address}/jobs/scores/rows?refresh=off")
    assert browser.execute_script(UNNAMED) == []
    browser.find_element(By.ID, "table").send_keys("totals\tred\n")
    until(lambda: "table=totals&key=red" in browser.current_url)
    assert "nothing is recorded" in browser.find_element(By.TAG_NAME, "main").text
    browser.get(f"{served.address}/jobs/scores?refresh=off")
    assert browser.execute_script(UNNAMED) == []
    assert errors(browser) == []


def crowded() -> JobSnapshot:
    """What a driver has left of stages with long names and large numbers."""
    found = snapshot(SystemClock().now_us(), 123_456_789_012)
    stages = {
        f"{name} of a pipeline with a rather long label/GroupByKey": attrs.evolve(
            stage, records=123_456_789_012, records_per_s=1_234_567.0
        )
        for name, stage in found.stages.items()
    }
    return attrs.evolve(found, job="scores", stages={**found.stages, **stages})


#: Inputs without a label, and what scrolls and cannot be reached by keyboard.
UNNAMED = """
const named = each => each.labels?.length || each.ariaLabel;
return [...document.querySelectorAll("input")].filter(each => !named(each)).map(each => each.outerHTML).concat(
  [...document.querySelectorAll(".scroll")].filter(each => each.tabIndex < 0).map(each => each.outerHTML.slice(0, 80)));
"""
#: The least contrast of any text with the first ground that is not transparent, by the formula of WCAG 2.
CONTRAST = """
const parts = text => (text.match(/[\\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = element => {
  for (let at = element; at; at = at.parentElement) {
    const color = parts(getComputedStyle(at).backgroundColor);
    if (color.length === 3 || color[3] > 0) return color;
  }
  return [255, 255, 255];
};
let least = { ratio: 99, text: "" };
for (const element of document.querySelectorAll("body *:not(svg *):not(script)")) {
  if (![...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())) continue;
  const [one, two] = [light(parts(getComputedStyle(element).color)), light(ground(element))].sort((a, b) => b - a);
  const ratio = (one + 0.05) / (two + 0.05);
  if (ratio < least.ratio) least = { ratio, text: element.textContent.trim().slice(0, 40) };
}
return least;
"""
