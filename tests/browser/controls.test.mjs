// Controls of a call: hold, mute, stop, write, settings, keyboard, screen reader.
//
// Usage: REPARTEE_URL=http://127.0.0.1:PORT/ node --test controls.test.mjs

import assert from "node:assert/strict";
import { test } from "node:test";
import { ANSWERED, SPOKEN, axeFinds, call, inCall, send, sent, state, withStandin, words } from "./calls.mjs";

/** @import { Page } from "playwright-core" */

/** @param {{ type: string }[]} events */
const types = (events) => events.map(({ type }) => type);

/**
 * Waits until the stand-in receives the microphone's sound, or has received none for a while.
 *
 * @type {(page: Page, sound: boolean) => Promise<unknown>}
 */
const hears = (page, sound) =>
  page.waitForFunction((wanted) => (standin.level() > 0.01) === wanted, sound);

test("push-to-talk commits by release", () =>
  withStandin(async (page) => {
    await page.click("#open-settings");
    await page.check("input[value=none]");
    await page.keyboard.press("Escape");
    await call(page);
    const [{ session }] = await sent(page, 1, "session.update");
    assert.equal(session.audio.input.turn_detection, null);
    await hears(page, false);
    // A hold that is too short sends nothing.
    await page.click("#hold");
    await sent(page, 2, "input_audio_buffer.clear");
    await state(page, "listening");
    assert.equal(await page.locator("#turns > li").count(), 0);
    await page.hover("#hold");
    await page.mouse.down();
    await state(page, "hearing");
    await hears(page, true);
    assert.equal((await sent(page, 3, "input_audio_buffer.clear")).length, 3);
    assert.deepEqual(await page.evaluate(() => standin.events.filter(({ type }) => type.endsWith("commit"))), []);
    await page.mouse.up();
    assert.deepEqual(types(await sent(page, 2, "input_audio_buffer.commit", "response.create")), [
      "input_audio_buffer.commit",
      "response.create",
    ]);
    await state(page, "thinking");
    await hears(page, false);
    assert.match((await page.textContent(".asked")) ?? "", /^Your turn, \d\.\d s$/);
  }));

test("a held button without any sound commits nothing", () =>
  withStandin(async (page) => {
    await page.evaluate(() => {
      const silence = new AudioContext().createMediaStreamDestination();
      navigator.mediaDevices.getUserMedia = async () => silence.stream;
    });
    await page.click("#open-settings");
    await page.check("input[value=none]");
    await page.keyboard.press("Escape");
    await call(page);
    await page.hover("#hold");
    await page.mouse.down();
    await state(page, "hearing");
    // A hold, not a slip.
    await page.waitForTimeout(400);
    await page.mouse.up();
    await page.waitForSelector("#notice:not([hidden])");
    assert.match((await page.textContent("#notice")) ?? "", /Nothing was heard/);
    await state(page, "listening");
    assert.deepEqual(await page.evaluate(() => standin.events.filter(({ type }) => type.endsWith("commit"))), []);
  }));

test("mute silences the microphone and back", () =>
  inCall(async (page) => {
    await hears(page, true);
    await page.click("#mute");
    assert.equal(await page.getAttribute("#mute", "aria-pressed"), "true");
    await hears(page, false);
    await page.click("#mute");
    await hears(page, true);
  }));

test("the stop button ends the answer", () =>
  inCall(async (page) => {
    await send(page, ...SPOKEN, words("One, two"), { type: "output_audio_buffer.started", response_id: "resp_1" });
    await state(page, "speaking");
    await page.click("#stop");
    await sent(page, 1, "output_audio_buffer.clear");
    await send(page, { type: "output_audio_buffer.cleared", response_id: "resp_1" });
    await state(page, "listening");
    await page.waitForSelector("#turns li.interrupted");
  }));

test("a tapped suggestion is asked at once", () =>
  withStandin(async (page) => {
    const suggestion = page.locator("#asks button").first();
    const text = await suggestion.textContent();
    await suggestion.click();
    const [{ item }, next] = await sent(page, 2, "conversation.item.create", "response.create");
    assert.deepEqual([item.role, item.content[0].text, next.type], ["user", text, "response.create"]);
    assert.equal(await page.textContent(".asked"), `You: ${text}`);
  }));

test("settings reach the session and survive a reload", () =>
  inCall(async (page) => {
    const facts = { voices: ["ada", "bob"], default_voice: "ada", tools: false };
    await page.route("**/v1/models", (route) => route.fulfill({ json: { data: [{ repartee: facts }] } }));
    await page.click("#open-settings");
    await page.waitForSelector("#functions:disabled");
    await page.selectOption("#voice-name", "bob");
    await page.fill("#instructions", "Answer in one word.");
    await page.locator("#silence").fill("800");
    await page.uncheck("[data-setting=interrupts]");
    await page.selectOption("#slices", "2000");
    const updates = await sent(page, 5, "session.update");
    const { instructions, audio, repartee } = updates.at(-1).session;
    assert.equal(repartee.slice_ms, 2000);
    assert.equal(audio.output.voice, "bob");
    assert.equal(instructions, "Answer in one word.");
    assert.equal(audio.input.turn_detection.silence_duration_ms, 800);
    assert.equal(audio.input.turn_detection.interrupt_response, false);
    await page.reload();
    await call(page);
    const [{ session }] = await sent(page, 1, "session.update");
    assert.deepEqual([session.instructions, session.audio, session.repartee], [instructions, audio, repartee]);
  }));

test("another microphone takes over within the call", () =>
  inCall(async (page) => {
    await page.evaluate(() => {
      const opened = navigator.mediaDevices.getUserMedia;
      navigator.mediaDevices.getUserMedia = async function (wanted) {
        window.asked = typeof wanted?.audio === "object" && wanted.audio.deviceId;
        window.opened = await opened.call(this, wanted);
        return window.opened;
      };
    });
    await page.click("#open-settings");
    await page.waitForFunction(() => document.querySelectorAll("#microphone option").length > 2);
    const chosen = await page.locator("#microphone option").nth(2).getAttribute("value");
    await page.selectOption("#microphone", chosen);
    await page.waitForFunction(() => window.opened);
    assert.deepEqual(await page.evaluate(() => window.asked), { ideal: chosen });
    await page.evaluate(() => standin.listenAnew());
    await hears(page, true);
    // The call sends the new microphone: without it there is silence.
    await page.evaluate(() => { window.opened.getAudioTracks()[0].enabled = false; });
    await hears(page, false);
  }));

test("the screen stays on during a call", () =>
  withStandin(async (page) => {
    await page.evaluate(() => {
      window.locks = [];
      const request = async (/** @type {string} */ kind) => {
        window.locks.push(kind);
        return { release: () => window.locks.push("released") };
      };
      Object.defineProperty(navigator, "wakeLock", { value: { request } });
    });
    await call(page);
    await page.click("#call");
    await state(page, "idle");
    assert.deepEqual(await page.evaluate(() => window.locks), ["screen", "released"]);
  }));

test("events are listed both ways", () =>
  inCall(async (page) => {
    await send(page, ...SPOKEN, words("One, "), words("two"), ANSWERED);
    await page.fill("#text", "Three?");
    await page.press("#text", "Enter");
    await sent(page, 1, "response.create");
    await page.click("#open-events");
    const listed = await page.locator("#log li:visible .type").allTextContents();
    assert.ok(listed.includes("input_audio_buffer.committed") && listed.includes("response.create"), listed.join());
    assert.equal(listed.filter((type) => type.endsWith(".delta")).length, 1, "deltas share a line");
    await page.fill("#filter", "response.create");
    assert.deepEqual(await page.locator("#log li:visible .type").allTextContents(), ["response.created", "response.create"]);
    await page.click("#log li.sent:visible summary");
    assert.match((await page.textContent("#log pre")) ?? "", /"type": "response.create"/);
  }));

test("keyboard alone holds a call", () =>
  withStandin(async (page) => {
    const reach = async (/** @type {string} */ id) => {
      for (let presses = 0; presses < 40; presses += 1) {
        if (await page.evaluate((wanted) => document.activeElement?.id === wanted, id)) return;
        await page.keyboard.press("Tab");
      }
      assert.fail(`Tab never reaches #${id}`);
    };
    await reach("open-settings");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#settings[open]");
    await page.keyboard.press("Escape");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "open-settings", "focus goes back");
    await reach("call");
    await page.keyboard.press("Enter");
    await state(page, "listening");
    await page.evaluate(() => standin.opened);
    await reach("text");
    await page.keyboard.type("What is two and two?");
    await page.keyboard.press("Enter");
    await sent(page, 1, "response.create");
    await send(page, { type: "response.created", response: { id: "resp_1" } }, words("Four."));
    await send(page, { type: "output_audio_buffer.started", response_id: "resp_1" });
    await state(page, "speaking");
    await page.keyboard.press("Escape");
    await sent(page, 1, "output_audio_buffer.clear");
    await reach("call");
    await page.keyboard.press("Space");
    await state(page, "idle");
  }));

test("axe finds nothing wrong in either theme", () =>
  withStandin(async (page) => {
    const check = async (/** @type {string} */ where) => {
      for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
        await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
        assert.deepEqual(await axeFinds(page), [], `${where}, ${colorScheme}`);
      }
    };
    await page.waitForSelector("#asks button");
    await check("before a call");
    await call(page);
    await send(page, ...SPOKEN, words("One, two, three"), { type: "output_audio_buffer.started", response_id: "resp_1" });
    await send(page, { type: "output_audio_buffer.cleared", response_id: "resp_1" });
    await send(page, { type: "conversation.item.retrieved", item: { id: "item_2", content: [{ transcript: "One," }] } });
    await send(page, { type: "error", error: { message: "no such voice" } });
    await page.waitForSelector("#alert:not([hidden])");
    await check("in a call");
    await page.click("#open-settings");
    await check("settings");
    await page.keyboard.press("Escape");
    await page.click("#open-events");
    await check("events");
  }));

test("the chosen theme is kept", () =>
  withStandin(async (page) => {
    const shown = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const light = await shown();
    await page.click("#open-settings");
    await page.check("input[value=dark]", { force: true });
    const dark = await shown();
    assert.notEqual(dark, light);
    await page.reload();
    assert.equal(await shown(), dark);
    // Without a setting the theme is the system's.
    await page.emulateMedia({ colorScheme: "dark" });
    await page.click("#open-settings");
    for (const [theme, colour] of [["light", light], ["system", dark]]) {
      await page.check(`input[value=${theme}]`, { force: true });
      assert.equal(await shown(), colour, theme);
    }
  }, { colorScheme: "light" }));

test("the page keeps to its own policy", () =>
  withStandin(async (page) => {
    /** @type {string[]} */
    const broken = [];
    page.on("console", (message) => /Content Security Policy/.test(message.text()) && broken.push(message.text()));
    await call(page);
    await send(page, ...SPOKEN, words("One"));
    await page.evaluate(() => standin.sound(true));
    await page.waitForSelector(".waterfall", { state: "attached" });
    assert.deepEqual(broken, []);
  }, { bypassCSP: false }));
