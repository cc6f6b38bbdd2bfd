// The demo page in a call, and helpers of the tests.
//
// The page comes from the server at REPARTEE_URL; the call's other end is standin.js.

import { createRequire } from "node:module";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { MICROPHONE, launch, withPageOf } from "./browser.mjs";

/** @import { Browser, BrowserContextOptions, Page } from "playwright-core" */
/** @import { ServerEvent } from "../../web/types/events.js" */

/** Server event with the fields that a test needs. @typedef {{ type: ServerEvent["type"], [field: string]: unknown }} StubEvent */

export const URL_OF_PAGE = process.env.REPARTEE_URL ?? "";
export const STANDIN = fileURLToPath(new URL("standin.js", import.meta.url));

/** Waits for a state. @type {(page: Page, wanted: string) => Promise<unknown>} */
export const state = (page, wanted) => page.waitForFunction((name) => document.body.dataset.state === name, wanted);

/** Returns the error that shows, once there is one. @type {(page: Page) => Promise<string>} */
export const alertText = async (page) => {
  await page.waitForSelector("#alert:not([hidden])");
  return (await page.textContent("#alert")) ?? "";
};

/** One browser for all tests of a file: a start takes longer than most of them. @type {Promise<Browser> | null} */
let browser = null;
after(async () => (await browser)?.close());

/**
 * A page of its own whose microphone beeps.
 *
 * @template Result
 * @param {(page: Page) => Promise<Result>} use
 * @param {BrowserContextOptions} [options]
 */
export function withBeeps(use, options) {
  browser ??= launch(MICROPHONE.beeps);
  return browser.then((running) => withPageOf(running, use, options));
}

/**
 * The page with the stand-in, before any call.
 *
 * @template Result
 * @param {(page: Page) => Promise<Result>} use
 * @param {BrowserContextOptions} [options]
 */
export function withStandin(use, options) {
  return withBeeps(async (page) => {
    await page.addInitScript({ path: STANDIN });
    await page.goto(URL_OF_PAGE);
    return use(page);
  }, options);
}

/**
 * A page in a call with the stand-in.
 *
 * @template Result
 * @param {(page: Page) => Promise<Result>} use
 * @param {{ name: string, remembers?: boolean }} [card] replaces the server's card of the model
 */
export function inCall(use, card) {
  return withBeeps(async (page) => {
    await page.addInitScript({ path: STANDIN });
    if (card) await page.route("**/model.json", (route) => route.fulfill({ json: card }));
    await page.goto(URL_OF_PAGE);
    if (card) await page.waitForFunction((name) => document.querySelector("#model").textContent === name, card.name);
    await call(page);
    return use(page);
  });
}

/** Begins a call and waits until it stands. @param {Page} page */
export async function call(page) {
  await page.click("#call");
  await state(page, "listening");
  await page.evaluate(() => standin.opened);
}

/**
 * Sends server events from the stand-in.
 *
 * @param {Page} page
 * @param {StubEvent[]} events
 */
export const send = (page, ...events) =>
  page.evaluate((list) => list.forEach((event) => standin.send(event)), events);

/**
 * Returns the page's events of these types, once there are `count`.
 *
 * @param {Page} page
 * @param {number} count
 * @param {string[]} types
 * @returns {Promise<any[]>} JSON, which the tests compare
 */
export async function sent(page, count, ...types) {
  /** @param {string[]} list */
  const wanted = (list) => standin.events.filter(({ type }) => list.includes(type));
  await page.waitForFunction(({ list, least }) => standin.events.filter(({ type }) => list.includes(type)).length >= least, {
    list: types,
    least: count,
  });
  return page.evaluate(wanted, types);
}

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** Returns the accessibility violations that axe finds on the page, one line each. @param {Page} page */
export async function axeFinds(page) {
  if (!(await page.evaluate(() => "axe" in window))) await page.addScriptTag({ path: AXE });
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
}

/** The events of one spoken question up to its commit. @type {StubEvent[]} */
export const SPOKEN = [
  { type: "input_audio_buffer.speech_started", audio_start_ms: 1000, item_id: "item_1" },
  { type: "input_audio_buffer.speech_stopped", audio_end_ms: 2500, item_id: "item_1" },
  { type: "input_audio_buffer.committed", item_id: "item_1" },
  { type: "response.created", response: { id: "resp_1", status: "in_progress" } },
];
/** End of its answer. @type {StubEvent} */
export const ANSWERED = {
  type: "response.done",
  response: { id: "resp_1", status: "completed", output: [{ content: [{ type: "output_audio" }] }] },
};

/** Words of an answer. @type {(delta: string, response?: string, item?: string) => StubEvent} */
export const words = (delta, response = "resp_1", item = "item_2") => ({
  type: "response.output_audio_transcript.delta",
  response_id: response,
  item_id: item,
  delta,
});
