// Pictures of the demo page and the admin page for the documentation: a real call with the server's model.
//
// Usage: node screenshots.mjs URL FOLDER
//
// Writes FOLDER/page.png and FOLDER/admin.png.

import { join } from "node:path";
import { MICROPHONE, withPage } from "./browser.mjs";

/** @import { Page } from "playwright-core" */

const [url, folder] = process.argv.slice(2);
const QUESTIONS = /** @type {const} */ (["What is the capital of France?", "Count down from ten to five."]);

/** @type {(page: Page, wanted: string) => Promise<unknown>} */
const state = (page, wanted) => page.waitForFunction((name) => document.body.dataset.state === name, wanted);

/**
 * @param {Page} page
 * @param {string} question
 */
async function ask(page, question) {
  await page.fill("#text", question);
  await page.press("#text", "Enter");
  await state(page, "speaking");
}

await withPage(MICROPHONE.beeps, async (admin) => {
  await admin.goto(new URL("admin", url).href);
  const page = await admin.context().newPage();
  await page.goto(url);
  await page.click("#call");
  await state(page, "listening");
  await page.click("#mute");
  await ask(page, QUESTIONS[0]);
  await state(page, "listening");
  await ask(page, QUESTIONS[1]);
  // Half of it is heard.
  await page.waitForTimeout(1200);
  await page.click("#stop");
  await page.waitForSelector(".unheard");
  await page.locator(".time").first().click();
  await page.click("#open-settings");
  await page.screenshot({ path: join(folder, "page.png") });
  // The admin page asks every other second.
  await admin.waitForFunction(() => Number(document.querySelector("#responses").textContent) === 2);
  await admin.waitForTimeout(500);
  await admin.screenshot({ path: join(folder, "admin.png"), fullPage: true });
}, { viewport: { width: 1180, height: 820 }, colorScheme: "light" });
