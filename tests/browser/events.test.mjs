// Tools for developers of clients: the event log's copies, programs that repeat a call, raw events, functions of the user.
//
// Usage: REPARTEE_URL=http://127.0.0.1:PORT/ node --test events.test.mjs

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { promisify } from "node:util";
import { URL_OF_PAGE, SPOKEN, inCall, send, sent, state, withBeeps, withStandin } from "./calls.mjs";

/** @import { Page } from "playwright-core" */

const run = promisify(execFile);
/** The page may use the clipboard. */
const CLIPBOARD = { permissions: ["clipboard-read", "clipboard-write"] };

/** Clicks a button and returns the text that it copies. @type {(page: Page, button: string) => Promise<string>} */
async function copied(page, button) {
  await page.evaluate(() => navigator.clipboard.writeText(""));
  await page.click(button);
  await page.waitForFunction(async () => (await navigator.clipboard.readText()) !== "");
  return page.evaluate(() => navigator.clipboard.readText());
}

test("the log is copied and saved as lines", () =>
  withStandin(async (page) => {
    await page.fill("#text", "Three?");
    await page.press("#text", "Enter");
    await sent(page, 1, "response.create");
    await send(page, { type: "response.created", response: { id: "resp_1" } });
    await page.click("#open-events");
    await page.waitForSelector("#log li.received");
    const lines = (await copied(page, "#copy-events")).split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(
      lines.map(({ direction, event }) => `${direction} ${event.type}`),
      ["sent session.update", "sent conversation.item.create", "sent response.create", "received response.created"],
    );
    assert.ok(lines.every(({ at }) => !Number.isNaN(Date.parse(at))));
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save-events")]);
    assert.match(download.suggestedFilename(), /^repartee-.*\.jsonl$/);
    const saved = (await readFile(await download.path(), "utf8")).trimEnd().split("\n");
    assert.deepEqual(saved.map((line) => JSON.parse(line)), lines);
  }, CLIPBOARD));

test("copied programs repeat the call", () =>
  withBeeps(async (page) => {
    await page.goto(URL_OF_PAGE);
    await page.fill("#text", "What is \"three\" plus four?");
    await page.press("#text", "Enter");
    await state(page, "speaking");
    await page.click("#open-events");
    const python = await copied(page, "#copy-python");
    const javascript = await copied(page, "#copy-js");
    await page.keyboard.press("Escape");
    await page.click("#call");
    const interpreter = process.env.REPARTEE_PYTHON ?? "python3";
    for (const [program, written] of /** @type {const} */ ([[interpreter, ["-c", python]], [process.execPath, ["--input-type=module", "-e", javascript]]])) {
      const { stdout } = await run(program, written, { timeout: 40_000 });
      assert.match(stdout, /response\.output_audio_transcript\.done \w/, stdout);
      assert.match(stdout, /response\.done/);
    }
  }, CLIPBOARD));

test("a raw event is sent as written", () =>
  inCall(async (page) => {
    await page.click("#open-events");
    await page.fill("#raw-event", '{"type": "input_audio_buffer.clear", "event_id": "mine"}');
    await page.click("#raw button");
    const [event] = await sent(page, 1, "input_audio_buffer.clear");
    assert.equal(event.event_id, "mine");
    await page.fill("#raw-event", '{"type":');
    await page.click("#raw button");
    assert.match((await page.textContent("#raw-problem")) ?? "", /^This is not JSON/);
    await page.click("#events .close");
    await page.click("#call");
    await state(page, "idle");
    await page.click("#open-events");
    await page.fill("#raw-event", '{"type": "response.create"}');
    await page.click("#raw button");
    assert.match((await page.textContent("#raw-problem")) ?? "", /There is no call/);
  }));

test("a function of the user is called", () =>
  inCall(async (page) => {
    await page.route("**/v1/models", (route) => route.fulfill({ json: { data: [{ repartee: { tools: true } }] } }));
    await page.click("#open-settings");
    await page.waitForSelector("#functions:enabled");
    await page.click("#functions summary");
    await page.fill("#tool-name", "weather in Paris");
    await page.click("#tool-save");
    assert.match((await page.textContent("#tool-problem")) ?? "", /^A name has/);
    await page.fill("#tool-name", "get_weather");
    await page.fill("#tool-description", "The weather of a city.");
    await page.fill("#tool-parameters", '{"type": "object",');
    await page.click("#tool-save");
    assert.match((await page.textContent("#tool-problem")) ?? "", /not JSON/);
    const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
    await page.fill("#tool-parameters", JSON.stringify(parameters));
    await page.fill("#tool-result", "Sunny, 21 degrees.");
    await page.click("#tool-save");
    const [{ session }] = await sent(page, 1, "session.update");
    assert.deepEqual(session.tools, [{ type: "function", name: "get_weather", description: "The weather of a city.", parameters }]);
    const called = { type: "function_call", name: "get_weather", call_id: "call_1", arguments: '{"city": "Paris"}' };
    await send(page, ...SPOKEN, { type: "response.done", response: { id: "resp_1", status: "completed", output: [called] } });
    const [{ item }] = await sent(page, 1, "conversation.item.create");
    assert.deepEqual([item.type, item.call_id, item.output], ["function_call_output", "call_1", "Sunny, 21 degrees."]);
    await page.click("#tool-delete");
    assert.deepEqual((await sent(page, 2, "session.update")).at(-1).session.tools, []);
  }));
