// The demo page, with and without errors: tests of the visible state.
//
// Usage: REPARTEE_URL=http://127.0.0.1:PORT/ node --test page.test.mjs
// The page comes from the server at REPARTEE_URL; in most tests the call's other end is standin.js.

import assert from "node:assert/strict";
import { test } from "node:test";
import { MICROPHONE, withPage } from "./browser.mjs";
import { ANSWERED, SPOKEN, STANDIN, URL_OF_PAGE, alertText, inCall, send, sent, state, withBeeps, words } from "./calls.mjs";

/** @import { StubEvent } from "./calls.mjs" */

test("a turn shows words, states and first sound", () =>
  inCall(async (page) => {
    await send(page, SPOKEN[0]);
    await state(page, "hearing");
    await send(page, ...SPOKEN.slice(1));
    await state(page, "thinking");
    await send(page, { type: "response.output_audio_transcript.delta", response_id: "resp_1", delta: "Two and " });
    await page.waitForFunction(() => document.querySelector(".answer")?.textContent === "Two and ");
    assert.equal(await page.getAttribute("#turns li", "aria-busy"), "true");
    assert.equal(await page.textContent("#ttfp"), "–", "silence is not a first sound");

    await page.evaluate(() => standin.sound(true));
    await send(page, { type: "output_audio_buffer.started", response_id: "resp_1" });
    await send(page, { type: "response.output_audio_transcript.delta", response_id: "resp_1", delta: "two is four." });
    await state(page, "speaking");
    await page.waitForFunction(() => /^\d+ ms$/.test(document.querySelector("#ttfp").textContent));
    await page.waitForFunction(() => Number(document.querySelector("#it").style.getPropertyValue("--level")) > 0.5);

    await page.evaluate(() => standin.sound(false));
    await send(page, ANSWERED, { type: "output_audio_buffer.stopped", response_id: "resp_1" });
    await state(page, "listening");
    assert.equal(await page.textContent(".answer"), "Two and two is four.");
    assert.equal(await page.textContent(".asked"), "Your turn, 1.5 s");
    assert.match((await page.textContent(".time")) ?? "", /^first sound \d+ ms$/);
    assert.equal(await page.getAttribute("#turns li", "aria-busy"), null);
  }));

/**
 * Runs in the page before its own scripts: `clock` is what the page takes for the time, sound begins when it says, and the page's timers
 * run as it is advanced.
 */
function scriptedClock() {
  /** @type {Map<() => void, { every: number, due: number }>} */
  const timers = new Map();
  const clock = {
    now: 10_000,
    onset: Infinity,
    /** @param {number} ms */
    advance(ms) {
      for (const end = clock.now + ms; clock.now < end; ) {
        clock.now += 1;
        for (const [run, timer] of timers) {
          if (clock.now < timer.due) continue;
          timer.due += timer.every;
          run();
        }
      }
    },
  };
  window.clock = clock;
  performance.now = () => clock.now;
  // A timer's handle is its function, where a browser's is a number.
  const setInterval = (/** @type {() => void} */ run, /** @type {number} */ every) => {
    timers.set(run, { every, due: clock.now + every });
    return run;
  };
  const clearInterval = (/** @type {() => void} */ run) => timers.delete(run);
  Object.assign(window, { setInterval, clearInterval });
  AnalyserNode.prototype.getFloatTimeDomainData = function (samples) {
    const perMs = this.context.sampleRate / 1000;
    for (let i = 0; i < samples.length; i += 1) {
      samples[i] = clock.now - (samples.length - i) / perMs >= clock.onset ? 0.5 : 0;
    }
  };
}

test("time to first sound is exact on scripted clock", () =>
  withBeeps(async (page) => {
    await page.addInitScript(scriptedClock);
    await page.addInitScript({ path: STANDIN });
    await page.goto(URL_OF_PAGE);
    await page.click("#call");
    await state(page, "listening");
    await page.evaluate(() => standin.opened);
    for (const [turn, wait] of [700, 1900].entries()) {
      await page.evaluate(() => { clock.onset = Infinity; });
      await send(page, ...SPOKEN.slice(0, 2));
      await state(page, "thinking");
      // From the commit it counts, not from the end of the speech.
      await page.evaluate(() => clock.advance(300));
      await send(page, SPOKEN[2], { ...SPOKEN[3], response: { id: `resp_${turn}` } });
      await send(page, { type: "response.output_audio_transcript.delta", response_id: `resp_${turn}`, delta: "Two" });
      await page.waitForFunction((at) => document.querySelectorAll(".answer")[at]?.textContent === "Two", turn);
      const times = () => page.locator("#turns .time").allTextContents();
      await page.evaluate((ms) => {
        clock.onset = clock.now + ms;
        clock.advance(ms);
      }, wait);
      assert.equal((await times())[turn], "", "nothing was heard yet");
      // It reads often enough to know soon, and says when the sound began and not when it was noticed.
      await page.evaluate(() => clock.advance(40));
      const shown = parseInt((await times())[turn].replace("first sound ", ""), 10);
      assert.ok(Math.abs(shown - wait) <= 10, `${shown} ms shown for a wait of ${wait} ms`);
    }
  }));

test("time to first sound follows the wait", () =>
  inCall(async (page) => {
    // Sound through an encoder, a jitter buffer and a decoder, on a busy machine: the page's own times are the bounds.
    const wait = 700;
    const times = await page.evaluate(
      async ({ events, ms }) => {
        const seen = (/** @type {() => boolean} */ what) =>
          new Promise((resolve) => {
            const look = () => what() && resolve(performance.now());
            new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
          });
        const committed = seen(() => document.querySelector(".answer")?.textContent === "Two");
        const shown = seen(() => /^\d+ ms$/.test(document.querySelector("#ttfp").textContent));
        const sentAt = performance.now();
        events.forEach((event) => standin.send(event));
        const committedBy = await committed;
        await new Promise((resolve) => setTimeout(resolve, ms));
        const soundAt = performance.now();
        standin.sound(true);
        return { sentAt, committedBy, soundAt, shownAt: await shown };
      },
      { events: [...SPOKEN, words("Two")], ms: wait },
    );
    const shown = parseInt((await page.textContent("#ttfp")) ?? "", 10);
    // The page looks at stretches of 10 ms and rounds to whole ones.
    const [least, most] = [times.soundAt - times.committedBy - 11, times.shownAt - times.sentAt + 1];
    assert.ok(shown >= least && shown <= most, `${shown} ms shown, not ${least} to ${most} ms`);
  }));

test("an earlier answer's tail is no first sound", () =>
  inCall(async (page) => {
    await send(page, ...SPOKEN, words("One, two, three."));
    await page.evaluate(() => standin.sound(true));
    await send(page, { type: "output_audio_buffer.started", response_id: "resp_1" });
    await state(page, "speaking");
    await page.waitForFunction(() => /\d/.test(document.querySelector(".time")?.textContent ?? ""));
    await page.fill("#text", "And four?");
    await page.press("#text", "Enter");
    await sent(page, 1, "response.create");
    // The earlier answer goes on until the server has dropped it, longer than a reading of the meter.
    await page.waitForTimeout(300);
    const times = () => page.locator("#turns .time").allTextContents();
    assert.equal((await times())[1], "", "what sounds is the earlier answer");
    await page.evaluate(() => standin.sound(false));
    await send(page, { type: "output_audio_buffer.cleared", response_id: "resp_1" }, { type: "response.created", response: { id: "resp_2" } });
    await send(page, words("Five.", "resp_2", "item_4"), { type: "output_audio_buffer.started", response_id: "resp_2" });
    await page.evaluate(() => standin.sound(true));
    await page.waitForFunction(() => /\d/.test(document.querySelectorAll(".time")[1]?.textContent ?? ""));
    const shown = parseInt((await times())[1].replace("first sound ", ""), 10);
    assert.ok(shown >= 300, `${shown} ms are of the earlier answer`);
  }));

test("both directions have a level", () =>
  inCall(async (page) => {
    await page.waitForFunction(() => Number(document.querySelector("#you").style.getPropertyValue("--level")) > 0.2);
    assert.ok((await page.evaluate(() => Number(document.querySelector("#it").style.getPropertyValue("--level")))) < 0.2);
  }));

test("an interrupted answer is marked, the next follows", () =>
  inCall(async (page) => {
    await send(page, ...SPOKEN, { type: "output_audio_buffer.started", response_id: "resp_1" });
    await send(page, { type: "response.output_audio_transcript.delta", response_id: "resp_1", delta: "One, two, three" });
    await send(page, SPOKEN[0], { type: "output_audio_buffer.cleared", response_id: "resp_1" });
    await send(page, { type: "response.done", response: { id: "resp_1", status: "cancelled", status_details: { reason: "turn_detected" } } });
    await page.waitForSelector("#turns li.interrupted");
    assert.equal(await page.getAttribute("body", "data-state"), "hearing");
    await send(page, ...SPOKEN.slice(1, 3), { type: "response.created", response: { id: "resp_2" } });
    await send(page, { type: "response.output_audio_transcript.delta", response_id: "resp_2", delta: "Four." });
    await page.waitForFunction(() => document.querySelectorAll("#turns li").length === 2);
    assert.deepEqual(await page.locator(".answer").allTextContents(), ["One, two, three", "Four."]);
  }));

test("an answer without sound ends the wait", () =>
  inCall(async (page) => {
    await send(page, ...SPOKEN, { type: "response.output_text.delta", response_id: "resp_1", delta: "Written." });
    await state(page, "thinking");
    const output = [{ content: [{ type: "output_text" }] }];
    await send(page, { type: "response.done", response: { id: "resp_1", status: "completed", output } });
    await state(page, "listening");
    assert.equal(await page.textContent(".answer"), "Written.");
  }));

for (const remembers of [false, true]) {
  test(`earlier turns are ${remembers ? "kept" : "deleted"} where remembers is ${remembers}`, () =>
    inCall(async (page) => {
      /** @type {StubEvent[]} */
      const items = ["item_1", "item_2"].map((id) => ({ type: "conversation.item.done", item: { id } }));
      /** @type {StubEvent} */
      const played = { type: "output_audio_buffer.stopped", response_id: "resp_1" };
      await send(page, ...SPOKEN, ...items, ANSWERED, played);
      // Events arrive in order: once the error shows, everything before it has been dealt with.
      await send(page, { type: "error", error: { message: "all seen" } });
      assert.match(await alertText(page), /all seen/);
      await page.waitForTimeout(200);
      const deleted = await page.evaluate(() => standin.events.map((event) => `${event.type} ${"item_id" in event && event.item_id}`));
      const forgotten = ["conversation.item.delete item_1", "conversation.item.delete item_2"];
      assert.deepEqual(deleted, remembers ? [] : forgotten);
    }, { name: "stand-in", remembers }));
}

test("hanging up tells the server, releases the microphone", () =>
  inCall(async (page) => {
    await page.evaluate(() => {
      const opened = navigator.mediaDevices.getUserMedia;
      window.watched = [];
      navigator.mediaDevices.getUserMedia = async function (wanted) {
        const stream = await opened.call(this, wanted);
        window.watched.push(...stream.getTracks());
        return stream;
      };
    });
    await page.click("#call");
    await state(page, "idle");
    await page.click("#call");
    await state(page, "listening");
    await page.click("#call");
    await state(page, "idle");
    assert.equal(await page.evaluate(() => standin.hangups), 2);
    assert.deepEqual(await page.evaluate(() => watched.map((track) => track.readyState)), ["ended"]);
    assert.equal(await page.textContent("#call-label"), "Start talking");
    assert.equal(await page.isHidden("#alert"), true);
  }));

test("a lost connection is redialled with its history", () =>
  inCall(async (page) => {
    await send(page, ...SPOKEN);
    await send(page, { type: "conversation.item.input_audio_transcription.completed", transcript: "Two and two?" });
    await send(page, { type: "response.output_audio_transcript.delta", response_id: "resp_1", delta: "It is " });
    await send(page, { type: "response.output_audio_transcript.delta", response_id: "resp_1", delta: "four." });
    await send(page, ANSWERED, { type: "output_audio_buffer.stopped", response_id: "resp_1" });
    await state(page, "listening");
    await page.evaluate(() => standin.close());
    await page.waitForFunction(() => standin.calls === 2);
    await page.waitForFunction(() => standin.events.length === 2);
    await state(page, "listening");
    const told = (await sent(page, 2, "conversation.item.create")).map(({ item }) => `${item.role}: ${item.content[0].text}`);
    assert.deepEqual(told, ["user: Two and two?", "assistant: It is four."]);
    assert.equal(await page.isHidden("#alert"), true);
    assert.equal(await page.textContent(".answer"), "It is four.", "what was said stays on the page");
    // The conversation goes on below it.
    await send(page, ...SPOKEN.slice(0, 3), { type: "response.created", response: { id: "resp_2" } });
    await send(page, { type: "response.output_audio_transcript.delta", response_id: "resp_2", delta: "Five." });
    await page.waitForFunction(() => document.querySelectorAll("#turns li").length === 2);
    await page.click("#call");
    await state(page, "idle");
  }, { name: "stand-in", remembers: true }));

/** Runs in the page: its connections tell the same statistics from now on, as if nothing arrived. */
function freezeStatistics() {
  const { getStats } = RTCPeerConnection.prototype;
  /** @type {Map<RTCPeerConnection, Promise<RTCStatsReport>>} */
  const frozen = new Map();
  RTCPeerConnection.prototype.getStats = function () {
    const reports = frozen.get(this) ?? getStats.call(this);
    frozen.set(this, reports);
    return reports;
  };
}

test("an interruption is noticed within 3 s", () =>
  withBeeps(async (page) => {
    await page.addInitScript({ path: STANDIN });
    await page.clock.install();
    await page.goto(URL_OF_PAGE);
    await page.click("#call");
    await state(page, "listening");
    await page.evaluate(() => standin.opened);
    await send(page, ...SPOKEN, words("Four."), { type: "output_audio_buffer.started", response_id: "resp_1" }, ANSWERED);
    await send(page, { type: "output_audio_buffer.stopped", response_id: "resp_1" });
    await state(page, "listening");
    await page.clock.runFor(2000);
    assert.equal(await page.isHidden("#notice"), true, "the reports of the other end arrive");
    await page.evaluate(freezeStatistics);
    await page.clock.runFor(3000);
    await page.waitForSelector("#notice:not([hidden])");
    assert.match((await page.textContent("#notice")) ?? "", /Nothing arrives/);
    assert.equal(await page.evaluate(() => standin.calls), 1, "the network may come back");
    await page.clock.runFor(6000);
    await page.waitForFunction(() => standin.calls === 2);
    await state(page, "listening");
    assert.equal(await page.isHidden("#notice"), true);
    assert.equal(await page.textContent(".turn-foot"), "", "the answer was complete before");
    // An answer in progress is marked.
    await page.evaluate(() => standin.opened);
    await send(page, ...SPOKEN.slice(0, 3), { type: "response.created", response: { id: "resp_2" } }, words("Five", "resp_2", "item_4"));
    await page.waitForFunction(() => document.querySelectorAll(".answer")[1]?.textContent === "Five");
    await page.evaluate(() => standin.close());
    await page.waitForFunction(() => document.querySelectorAll(".turn-foot")[1]?.textContent === "The connection was lost.");
  }));

test("a refused redial is reported and ends the call", () =>
  inCall(async (page) => {
    await page.evaluate(() => { standin.refuse = { status: 403, error: { message: "keys have changed" } }; });
    await page.evaluate(() => standin.close());
    assert.match(await alertText(page), /refused this page: keys have changed/);
    await state(page, "idle");
    await page.evaluate(() => { standin.refuse = null; });
    await page.click("#call");
    await state(page, "listening");
    assert.equal(await page.isHidden("#alert"), true);
  }));

test("hanging up ends the wait for a connection", () =>
  inCall(async (page) => {
    await page.evaluate(() => { standin.refuse = { status: 503, error: {} }; });
    await page.evaluate(() => standin.close());
    await state(page, "redialling");
    await page.click("#call");
    await state(page, "idle");
    assert.equal(await page.isHidden("#alert"), true);
  }));

for (const [name, address] of [["typed in", ""], ["in the address", "#key=the-key-of-the-house"]]) {
  test(`a key ${name} opens the server`, () =>
    withBeeps(async (page) => {
      const keyless = { status: 401, json: { error: { code: "missing_api_key", message: "this server needs a key" } } };
      /** @type {string[]} */
      const seen = [];
      await page.route("**/v1/realtime/**", async (route) => {
        const key = route.request().headers().authorization;
        seen.push(route.request().url());
        if (key !== "Bearer the-key-of-the-house") return route.fulfill(keyless);
        // Any call request shows that the key was right.
        return route.fulfill({ status: 503, json: { error: { message: "full" } } });
      });
      await page.goto(URL_OF_PAGE + address);
      assert.equal(await page.evaluate(() => location.hash), "", "the key does not stay in the address");
      await page.click("#call");
      if (!address) {
        assert.match(await alertText(page), /needs a key/);
        assert.equal(await page.evaluate(() => document.activeElement?.id), "key");
        await page.fill("#key", "the-key-of-the-house");
        await page.press("#key", "Enter");
      }
      await page.waitForFunction(() => /server is full/.test(document.querySelector("#alert").textContent));
      assert.equal(await page.isHidden("#key-form"), true);
      assert.ok(seen.every((url) => !url.includes("the-key")));
    }));
}

test("an error event is shown and the call goes on", () =>
  inCall(async (page) => {
    await send(page, { type: "error", error: { type: "invalid_request_error", message: "no such voice" } });
    assert.match(await alertText(page), /no such voice/);
    assert.equal(await page.getAttribute("body", "data-state"), "listening");
  }));

test("a denied microphone is reported", () =>
  withPage(MICROPHONE.denied, async (page) => {
    await page.goto(URL_OF_PAGE);
    await page.click("#call");
    assert.match(await alertText(page), /microphone was denied/);
    await state(page, "idle");
  }));

for (const [name, error, reason] of /** @type {const} */ ([
  ["missing", "NotFoundError", /No microphone was found/],
  ["busy", "NotReadableError", /another program may be using it/],
])) {
  test(`a ${name} microphone is reported`, () =>
    withBeeps(async (page) => {
      // The test replaces the browser's reply, so that the machine's devices do not matter.
      await page.addInitScript((type) => {
        navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException("stand-in", type));
      }, error);
      await page.goto(URL_OF_PAGE);
      await page.click("#call");
      assert.match(await alertText(page), reason);
      await state(page, "idle");
    }));
}

test("an insecure page says where the microphone works", () =>
  withBeeps(async (page) => {
    // The page as another machine would get it over plain http.
    const elsewhere = "http://repartee.test/";
    await page.route(`${elsewhere}**`, async (route) => {
      const path = route.request().url().slice(elsewhere.length);
      await route.fulfill({ response: await route.fetch({ url: new URL(path, URL_OF_PAGE).href }) });
    });
    await page.goto(elsewhere);
    await page.click("#call");
    assert.match(await alertText(page), /https:\/\/ or on this machine/);
  }));

for (const [name, reply, reason] of /** @type {const} */ ([
  ["full", { status: 503, json: { error: { code: "session_limit_reached", message: "all slots are taken" } } }, /server is full/],
  ["refusing", { status: 400, json: { error: { message: "the offer has no audio" } } }, /refused the call: the offer has no audio/],
  ["broken", { status: 500, body: "oops" }, /refused the call \(status 500\)/],
])) {
  test(`a ${name} server is reported`, () =>
    withBeeps(async (page) => {
      await page.route("**/v1/realtime/calls", (route) => route.fulfill(reply));
      await page.goto(URL_OF_PAGE);
      await page.click("#call");
      assert.match(await alertText(page), reason);
      await state(page, "idle");
    }));
}

test("an unreachable server is reported", () =>
  withBeeps(async (page) => {
    await page.goto(URL_OF_PAGE);
    await page.route("**/v1/realtime/calls", (route) => route.abort());
    await page.click("#call");
    assert.match(await alertText(page), /does not answer/);
  }));
