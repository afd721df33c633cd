"""A page in a real browser, and what it did that a page of ours may not do."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WATCH = (
    "window.violations = []; document.addEventListener('securitypolicyviolation', e => violations.push(e.blockedURI));"
)


@dataclass
class Opened:
    """A page, and what it did that it may not do."""

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def faults(self) -> list[str]:
        violations = self.page.evaluate("window.violations ?? ['lost']")
        pwned = self.page.evaluate("window.pwned ?? null")
        return [*self.console, *self.requests, *violations, *([f"pwned: {pwned}"] if pwned else [])]

    def go(self, link: str) -> None:
        self.page.evaluate("link => { location.hash = link; }", link)

    def wait(self, selector: str) -> Any:
        return self.page.wait_for_selector(selector, timeout=20_000)

    def wait_text(self, selector: str, pattern: str) -> None:
        from playwright.sync_api import expect  # it may be missing: then no page is opened

        expect(self.page.locator(selector)).to_have_text(re.compile(f"^{pattern}$"), timeout=20_000)

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()
