// The admin page: figures of the server during a call.
//
// Usage: REPARTEE_URL=http://127.0.0.1:PORT/ node --test admin.test.mjs

import assert from "node:assert/strict";
import { test } from "node:test";
import { URL_OF_PAGE, axeFinds, state, withBeeps } from "./calls.mjs";

/** @import { Page } from "playwright-core" */

const ADMIN = new URL("admin", URL_OF_PAGE).href;
/** Waits until an element's text matches. @type {(page: Page, id: string, wanted: string) => Promise<unknown>} */
const shown = (page, id, wanted) =>
  page.waitForFunction(({ name, text }) => new RegExp(text).test(document.getElementById(name)?.textContent ?? ""), { name: id, text: wanted });

test("figures follow a call", () =>
  withBeeps(async (page) => {
    await page.goto(ADMIN);
    await shown(page, "calls", "^0 of \\d+$");
    await shown(page, "ttfp-50", "^–$");
    const caller = await page.context().newPage();
    await caller.goto(URL_OF_PAGE);
    await caller.click("#call");
    await state(caller, "listening");
    await caller.click("#mute");
    await caller.fill("#text", "What is three plus four?");
    await caller.press("#text", "Enter");
    await state(caller, "speaking");
    await shown(page, "calls", "^1 of \\d+$");
    await shown(page, "ttfp-50", "^\\d+ ms$");
    await shown(page, "responses", "^1$");
    await shown(page, "rtf", "^\\d\\.\\d\\d$");
    await shown(page, "engine-cores", "^\\d+\\.\\d\\d cores$");
    await shown(page, "memory", "^[1-9]\\d* MiB$");
    await page.waitForSelector("#stages .stage");
    await shown(page, "ended", "completed 1");
    await caller.click("#call");
    await shown(page, "calls", "^0 of");
  }));

test("calls are listed, hung up, and remembered", () =>
  withBeeps(async (page) => {
    const { name } = await (await fetch(new URL("model.json", URL_OF_PAGE))).json();
    const caller = await page.context().newPage();
    await caller.goto(URL_OF_PAGE);
    await caller.click("#call");
    await state(caller, "listening");
    await page.goto(ADMIN);
    await shown(page, "server", `^Repartee \\d+\\.\\d+.* · ${name} · up \\d+ `);
    await page.waitForSelector("#live tbody tr");
    const rows = page.locator("#live tbody tr");
    assert.equal(await rows.count(), 1);
    const cells = await rows.first().locator("td").allTextContents();
    assert.match(cells[0], /^rtc_/);
    assert.deepEqual([cells[1], cells[3]], ["webrtc", "127.0.0.1"]);
    // The table is read anew meanwhile: the button stays, with the focus.
    await page.focus("#live button");
    const seconds = cells[4];
    await page.waitForFunction((before) => document.querySelector("#live tbody td:nth-child(5)")?.textContent !== before, seconds);
    assert.equal(await page.evaluate(() => document.activeElement?.closest("#live") !== null), true);
    await page.click("#live button");
    // The page of the caller would call again: its connection was ended by the server.
    await caller.close();
    await page.waitForSelector("#live", { state: "hidden" });
    const ended = page.locator("#history tbody tr").first().locator("td");
    await shown(page, "history", cells[0]);
    assert.equal(await ended.last().textContent(), "hangup");
    await shown(page, "call-ends", "hangup [1-9]");
    await shown(page, "refusals", "none");
  }));

test("figures need the key where there are keys", () =>
  withBeeps(async (page) => {
    await page.route("**/metrics", async (route) => {
      if (route.request().headers().authorization === "Bearer the-key-of-the-house") return route.continue();
      return route.fulfill({ status: 401, json: { error: { code: "missing_api_key", message: "this server needs a key" } } });
    });
    await page.goto(ADMIN);
    await page.waitForSelector("#key-form:not([hidden])");
    assert.equal(await page.textContent("#calls"), "–");
    await page.fill("#key", "the-key-of-the-house");
    await page.press("#key", "Enter");
    await shown(page, "calls", "^\\d+ of \\d+$");
    assert.equal(await page.isHidden("#alert"), true);
  }));

test("axe finds nothing wrong in either theme", () =>
  withBeeps(async (page) => {
    await page.goto(ADMIN);
    await shown(page, "calls", "^\\d+ of \\d+$");
    for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
      await page.emulateMedia({ colorScheme });
      assert.deepEqual(await axeFinds(page), [], colorScheme);
    }
  }));

test("charts are drawn in the theme's colours", () =>
  withBeeps(async (page) => {
    await page.goto(ADMIN);
    for (const [colorScheme, accent] of /** @type {const} */ ([["light", "#0f766e"], ["dark", "#2dd4bf"]])) {
      await page.emulateMedia({ colorScheme });
      // With the next reading.
      await page.waitForFunction((accent) => document.querySelector("#chart-calls").getContext("2d")?.strokeStyle === accent, accent);
    }
  }));

test("nodes of a cluster are listed", () =>
  withBeeps(async (page) => {
    /** @type {(name: string, state: string, free: number) => object} */
    const node = (name, state, free) =>
      ({ name, state, free, slots: 4, phase: "serving", model: "demo", address: "10.0.0.1:8080", version: "0.1.0" });
    let feed = "live";
    await page.route("**/v1/cluster/nodes", (route) => route.fulfill({ json: { feed, data: [node("b", "own", 3), node("a", "silent", 1)] } }));
    await page.goto(ADMIN);
    await shown(page, "calls", "^\\d+ of \\d+$");
    assert.equal(await page.isHidden("#nodes-card"), true, "one server alone has no nodes");
    await page.route("**/metrics", async (route) => {
      const response = await route.fetch();
      return route.fulfill({ response, body: `${await response.text()}repartee_cluster_nodes{state="own"} 1\n` });
    });
    await page.waitForSelector("#nodes tbody tr");
    const rows = await page.locator("#nodes tbody tr").allTextContents();
    assert.deepEqual(rows, ["asilentserving1 of 4demo10.0.0.1:80800.1.0", "bthis oneserving3 of 4demo10.0.0.1:80800.1.0"]);
    assert.equal(await page.textContent("#feed"), "");
    feed = "stale";
    await shown(page, "feed", "NATS");
    assert.deepEqual(await axeFinds(page), []);
  }));
