"""The playground page in a real browser, driven as a person would."""

import re
import shutil
import struct
import wave

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT_MS = 60_000
READY = re.compile("^ready$")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a browser: apt-get install chromium"
)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = [
            "--no-sandbox",
            "--use-fake-ui-for-media-stream",
            "--use-fake-device-for-media-stream",
        ]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


def is_fault(line):
    """An error on the page's console, but for an answer that the server gave on purpose."""
    return line.type == "error" and not line.text.startswith("Failed to load resource: the server")


@pytest.fixture
def page(browser, server):
    """The page, ready; no script error and no violation of its policy happens on it."""
    context = browser.new_context(permissions=["microphone"])
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if is_fault(line) else None)
    page.goto(f"{server.address}/")
    page.get_by_role("status").filter(has_text=READY).wait_for()
    yield page
    context.close()
    assert wrong == []


@pytest.fixture
def sound(tmp_path):
    """A WAV file of two seconds."""
    file = tmp_path / "sound.wav"
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes(b"".join(struct.pack("<h", 8000 * (i // 40 % 2)) for i in range(32000)))
    return file


def test_a_chat_is_streamed_with_its_latency(page):
    page.get_by_label("Message").fill("Hello, 😀 ďábel!")
    page.get_by_label("Message").press("Enter")
    page.locator("#times").filter(has_text="ended by stop").wait_for()
    assert page.locator(".turn.user").inner_text() == "Hello, 😀 ďábel!"
    assert page.locator(".turn.model").inner_text() == "Hello, 😀 ďábel!"
    times = page.locator("#times").inner_text()
    assert times.startswith("first token ")
    assert f"{len('Hello, 😀 ďábel!'.encode())} tokens" in times


def test_what_a_model_says_is_text_and_never_markup(page):
    page.get_by_label("Message").fill("<img src=x onerror=document.title='hacked'>")
    page.get_by_label("Message").press("Enter")
    page.locator("#times").filter(has_text="ended by").wait_for()
    assert page.title() == "mstar-core playground"
    assert page.locator(".turn img").count() == 0


def test_an_answer_is_stopped_by_its_button_and_the_next_one_works(page):
    page.locator("#max-tokens").fill("30000")
    page.get_by_label("Message").fill("long " * 6_000)
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("stopped").wait_for()
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Message").fill("again")
    page.get_by_role("button", name="Send").click()
    page.locator("#times").filter(has_text="ended by stop").wait_for()
    assert page.locator(".turn.model").inner_text() == "again"


def test_an_error_is_shown_in_its_words(page):
    page.locator("#max-tokens").fill("999999999")
    page.get_by_label("Message").fill("hi")
    page.get_by_role("button", name="Send").click()
    page.locator(".turn .error").wait_for()
    assert "999999999 new ones are asked for" in page.locator(".turn .error").inner_text()


def test_a_sound_file_is_heard(page, sound):
    page.get_by_role("tab", name="Transcribe").click()
    page.get_by_label("Sound file").set_input_files(sound)
    page.get_by_role("button", name="Transcribe").click()
    page.get_by_text("2.00 s of sound", exact=True).wait_for()
    assert "times real time" in page.locator("#times").inner_text()


def test_the_microphone_is_heard(page):
    page.get_by_role("tab", name="Transcribe").click()
    page.get_by_role("button", name="Record").click()
    page.wait_for_timeout(700)
    page.get_by_role("button", name="Stop recording").click()
    page.get_by_role("button", name="Transcribe").click()
    page.locator("#heard").filter(has_text="s of sound").wait_for()


def test_text_is_spoken(page):
    page.get_by_role("tab", name="Speak").click()
    page.get_by_label("Text to speak").fill("say this")
    page.get_by_role("button", name="Speak").click()
    page.locator("#times").filter(has_text="first sound").wait_for()
    page.wait_for_function("document.getElementById('spoken').duration > 0.05")


def test_a_server_with_a_key_asks_for_it(browser, serve, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("an-open-sesame-of-length\n")
    server = serve("--api-key-file", str(keys)).bound()
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"{server.address}/")
    page.get_by_role("status").filter(has_text="needs an API key").wait_for()
    page.get_by_label("API key").fill("an-open-sesame-of-length")
    page.get_by_role("status").filter(has_text=READY).wait_for()
    page.get_by_label("Message").fill("open")
    page.get_by_role("button", name="Send").click()
    page.locator("#times").filter(has_text="ended by stop").wait_for()
    assert page.locator(".turn.model").inner_text() == "open"
    page.close()


def test_without_its_page_a_server_says_what_else_there_is(serve):
    server = serve("--no-ui").ready()
    assert server.get("/").status == 404
