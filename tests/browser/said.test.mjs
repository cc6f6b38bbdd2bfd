// The page's record of a conversation: heard words, functions, waterfall, history, downloads.
//
// Usage: REPARTEE_URL=http://127.0.0.1:PORT/ node --test said.test.mjs

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { ANSWERED, SPOKEN, call, inCall, send, sent, state, words } from "./calls.mjs";

/** @import { Page } from "playwright-core" */
/** @import { StubEvent } from "./calls.mjs" */

/** @type {StubEvent} */
const STARTED = { type: "output_audio_buffer.started", response_id: "resp_1" };
/** @type {StubEvent} */
const STOPPED = { type: "output_audio_buffer.stopped", response_id: "resp_1" };

/** An answer of six words, of which the caller lets two pass before speaking again. @param {Page} page */
async function interrupt(page) {
  await send(page, ...SPOKEN, words("One, two, three, "), words("four, five, six."), STARTED);
  await state(page, "speaking");
  await send(page, SPOKEN[0], { type: "output_audio_buffer.cleared", response_id: "resp_1" });
  await send(page, { type: "response.done", response: { id: "resp_1", status: "cancelled", status_details: { reason: "turn_detected" } } });
  await send(page, { type: "conversation.item.truncated", item_id: "item_2", content_index: 0, audio_end_ms: 900 });
  const [{ item_id: asked }] = await sent(page, 1, "conversation.item.retrieve");
  assert.equal(asked, "item_2");
  const content = [{ type: "output_audio", transcript: "One, two," }];
  await send(page, { type: "conversation.item.retrieved", item: { id: "item_2", type: "message", role: "assistant", content } });
  await page.waitForSelector(".unheard");
}

test("words that were not heard are struck out", () =>
  inCall(async (page) => {
    await interrupt(page);
    assert.equal(await page.textContent(".unheard"), " three, four, five, six.");
    assert.equal(await page.textContent(".answer"), "One, two, three, four, five, six.", "nothing is lost from sight");
    assert.match(await page.locator(".unheard").evaluate((words) => getComputedStyle(words).textDecorationLine), /line-through/);
    assert.equal(await page.textContent(".turn-foot"), "interrupted, 4 words not heard");
  }));

test("a late transcript goes to its own turn", () =>
  inCall(async (page) => {
    await send(page, ...SPOKEN, ANSWERED, SPOKEN[0], SPOKEN[1], { ...SPOKEN[2], item_id: "item_3" });
    await page.waitForFunction(() => document.querySelectorAll("#turns > li").length === 2);
    const part = "conversation.item.input_audio_transcription";
    await send(page, { type: `${part}.delta`, item_id: "item_3", delta: "And " });
    await send(page, { type: `${part}.delta`, item_id: "item_3", delta: "now?" });
    await send(page, { type: `${part}.completed`, item_id: "item_1", transcript: "Two and two?" });
    await page.waitForFunction(() => document.querySelector(".asked")?.textContent === "You: Two and two?");
    assert.deepEqual(await page.locator(".asked").allTextContents(), ["You: Two and two?", "You: And now?"]);
  }));

test("a function is called, shown and answered", () =>
  inCall(async (page) => {
    await page.route("**/v1/models", (route) => route.fulfill({ json: { data: [{ repartee: { tools: true } }] } }));
    await page.click("#open-settings");
    await page.check("[data-setting=dice]");
    await page.keyboard.press("Escape");
    const [{ session }] = await sent(page, 1, "session.update");
    assert.deepEqual(session.tools.map((/** @type {{ name: string }} */ { name }) => name), ["roll_dice"]);
    const called = { type: "function_call", name: "roll_dice", call_id: "call_1", arguments: '{"sides": 2}' };
    await send(page, ...SPOKEN, { type: "response.done", response: { id: "resp_1", status: "completed", output: [called] } });
    const [{ item: result }, next] = await sent(page, 2, "conversation.item.create", "response.create");
    assert.deepEqual([result.type, result.call_id, next.type], ["function_call_output", "call_1", "response.create"]);
    assert.match(result.output, /^[12]$/);
    await send(page, { type: "response.created", response: { id: "resp_2" } }, words("It fell.", "resp_2", "item_4"));
    await page.waitForFunction(() => document.querySelector(".answer")?.textContent === "It fell.");
    assert.equal(await page.textContent(".calls li"), `roll_dice({"sides": 2}) gave ${result.output}`);
    assert.equal(await page.locator("#turns > li").count(), 1, "the answer belongs to the same turn");
  }));

test("the wait for the first sound is explained", () =>
  inCall(async (page) => {
    await send(page, ...SPOKEN, words("Four."));
    await page.waitForFunction(() => document.querySelector(".answer")?.textContent === "Four.");
    await page.evaluate(() => standin.sound(true));
    await send(page, STARTED);
    await page.waitForSelector(".waterfall", { state: "attached" });
    await page.click(".time");
    const stages = await page.locator(".waterfall li").allTextContents();
    const names = stages.map((stage) => stage.replace(/\d+ ms$/, ""));
    const all = ["Endpointing", "Response created", "First word", "First sound left the server", "First sound heard"];
    // Sound and events travel apart, so the event that sound has left may be the later one.
    assert.deepEqual(names, names.length === 5 ? all : all.filter((name) => !name.includes("left")));
    assert.ok(await page.isVisible(".waterfall .stage"));
  }));

test("decisions of the server show with their reasons", () =>
  inCall(async (page) => {
    assert.equal(await page.evaluate(() => standin.decisions), 1, "the page asks for them");
    /** @type {(decision: string, reason: string, figures?: object) => StubEvent} */
    const made = (decision, reason, figures = {}) => ({ type: "repartee.decision", decision, reason, audio_ms: 1250, ...figures });
    const [started, ...rest] = SPOKEN;
    await send(page, made("noise_reduced", "far_field"), made("turn_started", "voice", { voice_ms: 64 }), started);
    await send(page, made("turn_paused", "silence", { silence_ms: 208 }), made("turn_ended", "model", { silence_ms: 320, probability: 0.934 }));
    await send(page, ...rest, words("One, two."), STARTED);
    await send(page, made("echo_found", "playback"), made("playback_paused", "loud_voice", { voice_ms: 16 }));
    await send(page, made("voice_dismissed", "voice_ended", { probability: 0.02 }));
    await send(page, made("interrupted", "network_sure", { voice_ms: 128, probability: 0.97 }), started, ...rest);
    await page.waitForFunction(() => document.querySelectorAll("#turns > li").length === 2);
    const shown = (/** @type {number} */ turn) => page.locator("#turns > li").nth(turn).locator(".decisions li span:last-child").allTextContents();
    assert.deepEqual(await shown(0), [
      "Noise reduced: microphone in the room",
      "Turn begins: a voice (voice 64 ms)",
      "Turn may be over: silence (silence 208 ms)",
      "Turn is over: the turn-detection model judged the pause (silence 320 ms, probability 0.93)",
      "Echo found and cancelled: playback and microphone compared",
      "Answer pauses: a voice louder than any echo (voice 16 ms)",
      "No interruption: the voice was short or soft (probability 0.02)",
    ]);
    assert.deepEqual(await shown(1), ["Answer interrupted: the voice sounds like an interruption (voice 128 ms, probability 0.97)"]);
    await page.locator(".time").first().click();
    assert.ok(await page.locator(".decisions").first().isVisible());
    await page.reload();
    assert.equal((await shown(0)).length, 7, "a reload keeps them");
  }));

test("a reload keeps the history and tells it", () =>
  inCall(async (page) => {
    await interrupt(page);
    await page.reload();
    assert.equal(await page.textContent(".unheard"), " three, four, five, six.");
    assert.equal(await page.textContent(".asked"), "Your turn, 1.5 s");
    await call(page);
    const told = await sent(page, 2, "conversation.item.create");
    assert.deepEqual(told.map(({ item }) => item.role), ["user", "assistant"]);
    assert.equal(told[1].item.content[0].text, "One, two,", "what was not heard was not said");
    await page.click("#clear");
    await page.reload();
    assert.equal(await page.locator("#turns > li").count(), 0);
  }, { name: "stand-in", remembers: true }));

/**
 * The file that a click brings.
 *
 * @param {Page} page
 * @param {string} button
 */
async function downloaded(page, button) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click(button)]);
  return { name: download.suggestedFilename(), contents: await readFile(await download.path()) };
}

test("transcript and sound can be saved", () =>
  inCall(async (page) => {
    await page.evaluate(() => standin.sound(true));
    await send(page, ...SPOKEN, words("Four."), STARTED, ANSWERED);
    await page.waitForFunction(() => /\d/.test(document.querySelector("#ttfp").textContent));
    // The beep of the microphone comes each second.
    await page.waitForTimeout(1500);
    await send(page, STOPPED);
    await page.click("#call");
    await state(page, "idle");
    const transcript = await downloaded(page, "#save-transcript");
    assert.match(transcript.name, /^repartee-.*\.txt$/);
    assert.match(transcript.contents.toString(), /You: \(spoken, 1\.5 s\)\nAnswer: Four\.\nFirst sound after \d+ ms/);
    const sound = await downloaded(page, "#save-sound");
    assert.match(sound.name, /\.webm$/);
    const loudest = await page.evaluate(async (bytes) => {
      const buffer = await new OfflineAudioContext(2, 1, 48000).decodeAudioData(Uint8Array.from(bytes).buffer);
      const peak = (/** @type {number} */ channel) => buffer.getChannelData(channel).reduce((most, x) => Math.max(most, Math.abs(x)), 0);
      return [peak(0), peak(1)];
    }, [...sound.contents]);
    assert.ok(loudest[0] > 0.1, `the caller is on the left: ${loudest}`);
    assert.ok(loudest[1] > 0.1, `the answer is on the right: ${loudest}`);
  }));
