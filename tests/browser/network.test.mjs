// Calls with the real server, by either transport, and where UDP does not get through.
//
// Usage: REPARTEE_URL=http://127.0.0.1:PORT/ node --test network.test.mjs

import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { MICROPHONE, record, withPage, writeMicrophone } from "./browser.mjs";
import { URL_OF_PAGE, alertText, state } from "./calls.mjs";

/** @import { Page } from "playwright-core" */

const QUESTION = fileURLToPath(new URL("../questions/capital-of-france.wav", import.meta.url));
/** Silence before the question, until the call is connected; a busy machine starts a browser slowly. */
const LEAD_S = 5;
const AFTER_S = 30;
/** Longer than the page waits for the first packet of a call. */
const CONNECT_WITHIN_MS = 10_000;

/** A page whose microphone asks one question after a while. @param {(page: Page) => Promise<void>} use */
async function asking(use) {
  const folder = await mkdtemp(join(tmpdir(), "repartee-"));
  try {
    const microphone = join(folder, "microphone.wav");
    await writeMicrophone(microphone, [QUESTION], LEAD_S, AFTER_S);
    return await withPage(MICROPHONE.file(microphone), use);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/**
 * Blocks UDP: rewrites the server's answers to a port of this machine that drops everything.
 *
 * @param {Page} page
 * @param {() => Promise<void>} use
 */
async function withoutUdp(page, use) {
  const hole = createSocket("udp4");
  await once(hole.bind(0, "127.0.0.1"), "listening");
  await page.route("**/v1/realtime/calls", async (route) => {
    const response = await route.fetch();
    /** @param {string} line */
    const blocked = (line) => line.replace(/ \S+ \d+ typ host/, ` 127.0.0.1 ${hole.address().port} typ host`);
    const sdp = (await response.text()).split("\r\n").map((line) => (line.startsWith("a=candidate:") ? blocked(line) : line));
    await route.fulfill({ response, body: sdp.join("\r\n") });
  });
  await page.clock.install();
  try {
    return await use();
  } finally {
    hole.close();
  }
}

/** Calls, and lets the time pass in which a first packet could come. @param {Page} page */
async function callInVain(page) {
  const answered = page.waitForResponse("**/v1/realtime/calls");
  await page.click("#call");
  await answered;
  // The answer has reached the page once it no longer waits for one.
  await page.waitForFunction(() => window.connection.signalingState === "stable");
  await page.clock.fastForward(CONNECT_WITHIN_MS);
}

/** Runs in the page before its own scripts: keeps its connection for the test. */
function noticeConnection() {
  window.RTCPeerConnection = class extends RTCPeerConnection {
    /** @param {[RTCConfiguration?]} settings */
    constructor(...settings) {
      super(...settings);
      window.connection = this;
    }
  };
}

/** Waits until an answer was shown and some of it was played. @param {Page} page */
async function answeredAloud(page) {
  await page.waitForFunction(() => document.querySelector("audio").srcObject);
  await page.evaluate(record);
  await page.waitForFunction(() => /^\d+ ms$/.test(document.querySelector("#ttfp").textContent));
  await page.waitForFunction(() => window.recorded.some(({ samples }) => samples.some((x) => Math.abs(x) > 0.1)));
  await state(page, "listening");
  assert.match((await page.textContent(".answer")) ?? "", /\w/);
}

test("a blocked call goes on over a websocket", () =>
  asking(async (page) => {
    await page.addInitScript(noticeConnection);
    await withoutUdp(page, async () => {
      await page.goto(URL_OF_PAGE);
      await callInVain(page);
      await state(page, "listening");
      assert.match((await page.textContent("#notice")) ?? "", /UDP does not get through.*websocket/);
      assert.equal(await page.isHidden("#alert"), true);
      // The microphone's audio is sent, and the answer is played.
      await answeredAloud(page);
      assert.match((await page.textContent(".asked")) ?? "", /^Your turn, \d\.\d s$/);
      // A stopped answer keeps its heard part, as this page counts it.
      await page.fill("#text", "Count down from ten to five.");
      await page.press("#text", "Enter");
      await state(page, "speaking");
      await page.click("#stop");
      await page.waitForSelector(".unheard");
      await state(page, "listening");
    });
  }));

test("a failed connection names UDP and TURN", () =>
  asking(async (page) => {
    await page.addInitScript(noticeConnection);
    await withoutUdp(page, async () => {
      await page.goto(URL_OF_PAGE);
      await page.click("#open-settings");
      await page.check("input[value=webrtc]");
      await page.keyboard.press("Escape");
      await callInVain(page);
      assert.match(await alertText(page), /UDP is blocked.*webrtc\.udp.*TURN relay \(webrtc\.turn\)/);
      await state(page, "idle");
    });
  }));

test("a written question is answered aloud", () =>
  asking(async (page) => {
    await page.goto(URL_OF_PAGE);
    await page.click("#call");
    await state(page, "listening");
    await page.click("#mute");
    await page.fill("#text", "What is the capital of France?");
    await page.press("#text", "Enter");
    await answeredAloud(page);
    assert.equal(await page.textContent(".asked"), "You: What is the capital of France?");
    assert.equal(await page.locator("#turns > li").count(), 1);
    await page.waitForFunction(() => /^\d+ ms, \d+\.\d % lost$/.test(document.querySelector("#network").textContent));
  }));

test("a silent server is noticed over a websocket", () =>
  asking(async (page) => {
    await page.addInitScript(() => localStorage.setItem("repartee.settings", JSON.stringify({ transport: "websocket" })));
    await page.clock.install();
    await page.goto(URL_OF_PAGE);
    await page.click("#call");
    await state(page, "listening");
    const alive = page.waitForResponse("**/healthz");
    await page.clock.runFor(1000);
    await alive;
    assert.equal(await page.isHidden("#notice"), true);
    // From now on nothing is answered.
    const asked = page.waitForRequest("**/healthz");
    await page.route("**/healthz", () => {});
    await page.clock.runFor(1000);
    await asked;
    await page.clock.runFor(2000);
    await page.waitForSelector("#notice:not([hidden])");
    assert.match((await page.textContent("#notice")) ?? "", /Nothing arrives/);
    const redialled = page.waitForEvent("websocket");
    await page.clock.runFor(5000);
    await redialled;
    await page.unroute("**/healthz");
    await state(page, "listening");
    assert.equal(await page.isHidden("#notice"), true);
  }));
