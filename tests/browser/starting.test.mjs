// The pages while the server loads its model.
//
// Usage: REPARTEE_URL=http://127.0.0.1:PORT/ node --test starting.test.mjs
// The test replaces the server's report of its start.

import assert from "node:assert/strict";
import { test } from "node:test";
import { URL_OF_PAGE, alertText, axeFinds, withBeeps } from "./calls.mjs";

const REFUSED = { error: { code: "server_starting", message: "the server is loading its model" } };

test("the page waits for the model", () =>
  withBeeps(async (page) => {
    /** @type {{ status: string, stage: string, fraction: number } | null} */
    let start = { status: "starting", stage: "opening", fraction: 0 };
    await page.route("**/readyz", (route) => (start ? route.fulfill({ status: 503, json: start }) : route.continue()));
    await page.route("**/model.json", (route) => (start ? route.fulfill({ status: 503, json: REFUSED }) : route.continue()));
    await page.goto(URL_OF_PAGE);
    await page.waitForSelector("#starting:not([hidden])");
    assert.equal(await page.isDisabled("#call"), true);
    start = { status: "starting", stage: "weights", fraction: 0.42 };
    await page.waitForFunction(() => document.querySelector("#starting-bar").value === 0.42);
    assert.equal(await page.textContent("#starting-stage"), "Loading the model…");
    assert.deepEqual(await axeFinds(page), []);
    start = null;
    await page.waitForSelector("#starting", { state: "hidden" });
    await page.waitForFunction(() => document.querySelector("#model").textContent !== "");
    assert.equal(await page.isDisabled("#call"), false);
    assert.equal(await page.isHidden("#alert"), true);
  }));

test("the admin page says that the model loads", () =>
  withBeeps(async (page) => {
    let starting = true;
    await page.route("**/metrics", (route) => (starting ? route.fulfill({ status: 503, json: REFUSED }) : route.continue()));
    await page.goto(new URL("admin", URL_OF_PAGE).href);
    assert.match(await alertText(page), /loading its model/);
    starting = false;
    await page.waitForFunction(() => / of \d+$/.test(document.querySelector("#calls").textContent));
    assert.equal(await page.isHidden("#alert"), true);
  }));
