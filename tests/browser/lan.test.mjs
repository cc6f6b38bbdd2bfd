// A phone calls over HTTPS with a self-signed certificate, and with the key of the scanned code.
//
// Usage: REPARTEE_URL=https://127.0.0.1:PORT/ REPARTEE_KEY=KEY node --test lan.test.mjs

import assert from "node:assert/strict";
import { test } from "node:test";
import { MICROPHONE, withPage } from "./browser.mjs";

const { REPARTEE_URL: address = "", REPARTEE_KEY: key = "" } = process.env;

/** Accepts the browser's certificate warning. */
const GOING_ON = { ignoreHTTPSErrors: true };

test("the scanned address opens a call", () =>
  withPage(MICROPHONE.beeps, async (page) => {
    await page.goto(`${address}#key=${key}`);
    await page.click("#call");
    await page.waitForFunction(() => document.body.dataset.state === "listening");
    assert.equal(await page.isHidden("#alert"), true);
    assert.equal(await page.evaluate(() => location.hash), "");
    // A reload in the same tab still has the key.
    await page.reload();
    await page.click("#call");
    await page.waitForFunction(() => document.body.dataset.state === "listening");
  }, GOING_ON));

test("the key opens a websocket too", () =>
  withPage(MICROPHONE.beeps, async (page) => {
    await page.addInitScript(() => localStorage.setItem("repartee.settings", JSON.stringify({ transport: "websocket" })));
    await page.goto(`${address}#key=${key}`);
    await page.click("#call");
    await page.waitForFunction(() => document.body.dataset.state === "listening");
    await page.waitForFunction(() => document.querySelector("#network").textContent === "over a websocket");
    assert.equal(await page.isHidden("#alert"), true);
  }, GOING_ON));

test("without the key the page asks for it", () =>
  withPage(MICROPHONE.beeps, async (page) => {
    await page.goto(address);
    await page.click("#call");
    await page.waitForSelector("#key-form:not([hidden])");
    await page.fill("#key", key);
    await page.press("#key", "Enter");
    await page.waitForFunction(() => document.body.dataset.state === "listening");
  }, GOING_ON));
