// The demo page in a real Firefox.
//
// Usage: REPARTEE_URL=http://127.0.0.1:PORT/ node --test firefox.test.mjs
// Firefox has its usual settings: it offers the address of an interface, and none of loopback.

import assert from "node:assert/strict";
import { test } from "node:test";
import { URL_OF_PAGE } from "./calls.mjs";
import { withFirefox } from "./firefox.mjs";

/** Runs in the page: clicks the button of the call. */
const click = () => document.querySelector("#call").click();
/** Runs in the page: true in this state. @param {string} state */
const isIn = (state) => document.body.dataset.state === state;

test("a call connects over WebRTC", () =>
  withFirefox(async (page) => {
    await page.goto(URL_OF_PAGE);
    await page.until(() => !document.querySelector("#call").disabled);
    // The page falls back to a websocket if WebRTC fails.
    await page.evaluate(() => {
      window.sockets = 0;
      window.WebSocket = class extends WebSocket {
        /** @param {[string | URL, (string | string[])?]} options */
        constructor(...options) {
          super(...options);
          window.sockets += 1;
        }
      };
      document.querySelector("#call").click();
    });
    await page.until(() => !["idle", "connecting", "redialling"].includes(document.body.dataset.state ?? "idle"));
    assert.equal(await page.evaluate(() => window.sockets), 0);
    await page.until(() => document.querySelector("audio").srcObject !== null);
    await page.evaluate(click);
    await page.until(isIn, "idle");
    assert.equal(await page.evaluate(() => document.querySelector("#alert").hidden), true);
  }));
