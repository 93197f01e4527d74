"""A headless Chromium, where there is one: Debian's packages chromium and chromium-driver."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from harness.waiting import wait_until

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SHOWN_S = 10


def missing() -> str:
    """Why there is no browser to look through; empty: there is one."""
    if not any(shutil.which(name) for name in _BROWSERS):
        return f"no browser: none of {', '.join(_BROWSERS)} is on the path"
    return "" if shutil.which("chromedriver") else "no browser: chromedriver is not on the path"


@contextmanager
def browser(
    *, width: int = 1280, height: int = 1000, is_dark: bool = False
) -> Iterator[webdriver.Chrome]:
    """One with a window of this size. The test is skipped where there is none."""
    why_not = missing()
    if why_not:
        pytest.skip(why_not)
    options = webdriver.ChromeOptions()
    options.binary_location = next(path for name in _BROWSERS if (path := shutil.which(name)))
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--enable-precise-memory-info",
        f"--window-size={width},{height}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        # The window's size is with its frame; this is that of the page.
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {
                "features": [
                    {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
                ]
            },
        )
        yield driver
    finally:
        driver.quit()


def complaints(driver: webdriver.Chrome) -> list[str]:
    """Return the browser's errors about the page since the last call."""
    return [
        entry["message"]
        for entry in driver.get_log("browser")  # type: ignore[no-untyped-call]
        if "net::ERR" not in entry["message"]
    ]


def at(driver: webdriver.Chrome, css: str) -> WebElement:
    """Return the element that ``css`` selects."""
    return driver.find_element(By.CSS_SELECTOR, css)


def text_of(driver: webdriver.Chrome, css: str) -> str:
    """Return the element's text, hidden or not; empty if there is no such element."""
    found = driver.execute_script(
        "return document.querySelector(arguments[0])?.textContent ?? ''", css
    )
    return str(found)


def await_text(driver: webdriver.Chrome, css: str, words: str, deadline_s: float = SHOWN_S) -> None:
    """Until ``words`` stand there."""

    def there() -> bool:
        return words in text_of(driver, css)

    try:
        wait_until(there, deadline_s, f"{words!r} at {css}")
    except AssertionError as error:
        raise AssertionError(f"{error}; there stands {text_of(driver, css)!r}") from None
