// Without a microphone: writing, reading aloud, settings that a model ignores, voices by recording.
//
// Usage: REPARTEE_URL=http://127.0.0.1:PORT/ node --test written.test.mjs

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { STANDIN, URL_OF_PAGE, alertText, axeFinds, send, sent, state, withBeeps, withStandin, words } from "./calls.mjs";

/** @import { Page } from "playwright-core" */

/** Runs in the page: notes and refuses requests for a microphone. */
function denyMicrophone() {
  navigator.mediaDevices.getUserMedia = async (wanted) => {
    window.asked = wanted;
    throw new DOMException("denied by the test", "NotAllowedError");
  };
}

/**
 * The page of a model with these capabilities.
 *
 * @template Result
 * @param {Record<string, boolean>} capabilities
 * @param {(page: Page) => Promise<Result>} use
 */
const withModel = (capabilities, use) =>
  withBeeps(async (page) => {
    await page.addInitScript({ path: STANDIN });
    await page.route("**/model.json", (route) => route.fulfill({ json: { name: "stand-in", capabilities } }));
    await page.route("**/v1/models", (route) => route.fulfill({ json: { data: [{ repartee: capabilities }] } }));
    await page.goto(URL_OF_PAGE);
    await page.waitForFunction(() => document.querySelector("#model").textContent === "stand-in");
    return use(page);
  });

test("a message needs no microphone", () =>
  withStandin(async (page) => {
    await page.evaluate(denyMicrophone);
    await page.fill("#text", "Two and two?");
    await page.press("#text", "Enter");
    const [{ item }] = await sent(page, 1, "conversation.item.create");
    assert.equal(item.content[0].text, "Two and two?");
    await send(page, { type: "response.created", response: { id: "resp_1" } }, words("Four."));
    await page.waitForFunction(() => document.querySelector(".answer")?.textContent === "Four.");
    await send(page, { type: "output_audio_buffer.stopped", response_id: "resp_1" });
    await state(page, "listening");
    assert.equal(await page.textContent("#status"), "Write, or unmute to speak");
    assert.equal(await page.evaluate(() => window.asked), undefined);
    assert.equal(await page.getAttribute("#mute", "aria-pressed"), "true");
    // The microphone is asked for when it is wanted, and the call survives its refusal.
    await page.click("#mute");
    assert.match(await alertText(page), /microphone was denied/);
    await page.waitForSelector("#mute[aria-pressed=true]");
    await state(page, "listening");
  }));

test("unmuting a written call opens the microphone", () =>
  withStandin(async (page) => {
    await page.locator("#asks button").first().click();
    await sent(page, 1, "response.create");
    await page.evaluate(() => standin.listenAnew());
    await page.waitForFunction(() => standin.level() === 0);
    await page.click("#mute");
    await page.waitForFunction(() => standin.level() > 0.01);
    assert.equal(await page.getAttribute("#mute", "aria-pressed"), "false");
  }));

test("a model without hearing gets a written call", () =>
  withModel({ hears: false, transcription: false, tools: false, cloning: false }, async (page) => {
    await page.evaluate(denyMicrophone);
    await page.click("#call");
    await state(page, "listening");
    assert.equal(await page.evaluate(() => window.asked), undefined);
  }));

test("settings that the model ignores are marked", () =>
  withModel({ hears: true, transcription: false, tools: false, cloning: false, audio_output: true }, async (page) => {
    assert.match((await page.textContent("#talk [data-lacks=transcription]:not([hidden])")) ?? "", /does not write down what it hears/);
    await page.click("#open-settings");
    for (const ignored of ["#functions:disabled", "#new-voice:disabled", "[data-setting=captions]:disabled"]) {
      assert.equal(await page.locator(ignored).count(), 1, ignored);
    }
    assert.deepEqual(await page.locator("#settings [data-lacks]:visible").allTextContents(), [
      "The voices of this model are fixed.",
      "This model does not write down what it hears.",
      "This model calls no functions.",
    ]);
    assert.equal(await page.locator("#turn-settings:disabled, #voice-name:disabled").count(), 0);
    assert.deepEqual(await axeFinds(page), []);
  }));

test("a model that only speaks has one tab", () =>
  withModel({ hears: false, speech: true, speech_only: true }, async (page) => {
    await page.waitForSelector("#read:not([hidden])");
    assert.equal(await page.isVisible("#modes"), false);
    assert.equal(await page.isVisible("#call"), false, "there is nothing to talk to");
    assert.deepEqual(await axeFinds(page), []);
  }));

test("a text is read aloud and saved", () =>
  withBeeps(async (page) => {
    await page.goto(URL_OF_PAGE);
    await page.waitForSelector("#modes:not([hidden])");
    await page.focus("#mode-talk");
    await page.keyboard.press("ArrowRight");
    await page.fill("#read-text", "Four and three make seven.");
    await page.click("#read-start");
    await page.waitForFunction(() => /^Read, \d+\.\d s\.$/.test(document.querySelector("#read-status").textContent));
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#read-save")]);
    const wav = await readFile(await download.path());
    assert.equal(wav.toString("latin1", 0, 4) + wav.toString("latin1", 8, 16), "RIFFWAVEfmt ");
    assert.deepEqual([wav.readUInt32LE(24), wav.readUInt32LE(40)], [24_000, wav.length - 44]);
    const loudest = Math.max(...new Int16Array(wav.buffer, wav.byteOffset + 44, 24_000));
    assert.ok(loudest > 1000, `its loudest sample is ${loudest}`);
    assert.deepEqual(await axeFinds(page), []);
  }));

test("a voice is made of two recordings", () =>
  withModel({ hears: true, cloning: true, audio_output: true }, async (page) => {
    /** @type {Map<string, Buffer>} */
    const posted = new Map();
    for (const [path, id] of [["voice_consents", "cons_1"], ["voices", "voice_1"]]) {
      await page.route(`**/v1/audio/${path}`, (route) => {
        posted.set(path, route.request().postDataBuffer() ?? Buffer.alloc(0));
        return route.fulfill({ json: { id } });
      });
    }
    await page.click("#open-settings");
    await page.click("#new-voice summary");
    await page.fill("#new-voice-name", "Ada");
    for (const button of ["#record-consent", "#record-sample"]) {
      assert.equal(await page.isDisabled("#create-voice"), true);
      await page.click(button);
      await page.waitForFunction((name) => document.querySelector(name)?.textContent === "Stop", button);
      await page.click(button);
      await page.waitForFunction((name) => document.querySelector(name)?.textContent?.endsWith("again"), button);
    }
    await page.click("#create-voice");
    await page.waitForFunction(() => /is ready/.test(document.querySelector("#new-voice-status").textContent));
    const webm = Buffer.from([0x1a, 0x45, 0xdf, 0xa3]);
    for (const [path, fields] of /** @type {const} */ ([
      ["voice_consents", ["name", "language", "recording"]],
      ["voices", ["name", "consent", "audio_sample", "text"]],
    ])) {
      const form = posted.get(path) ?? Buffer.alloc(0);
      assert.deepEqual([...form.toString("latin1").matchAll(/ name="(\w+)"/g)].map(([, name]) => name), fields);
      assert.ok(form.includes(webm), `${path} has no recording`);
    }
    assert.match(posted.get("voices")?.toString("latin1") ?? "", /cons_1/);
  }));
