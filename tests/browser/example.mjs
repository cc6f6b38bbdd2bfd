// Makes a call with the example page: its fake microphone asks a question, and the answer is shown and played.
//
// Usage: node example.mjs SERVER FOLDER QUESTION.wav
//
// Prints the answer that the page shows, once its <audio> element has played some of it.

import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { MICROPHONE, record, withPage, writeMicrophone } from "./browser.mjs";

/** @import { AddressInfo } from "node:net" */

const PAGE = fileURLToPath(new URL("../../gateway/examples/page.html", import.meta.url));
/** Silence before the question, until the call is connected; a busy machine starts a browser slowly. */
const LEAD_S = 4;
const AFTER_S = 8;
const ANSWERED_WITHIN_MS = 60_000;

const [server, folder, question] = process.argv.slice(2);
const html = await readFile(PAGE);
const pages = createServer((_, reply) => reply.setHeader("Content-Type", "text/html").end(html));
await once(pages.listen(0, "localhost"), "listening");
const { port } = /** @type {AddressInfo} */ (pages.address());
const microphone = join(folder, "microphone.wav");
await writeMicrophone(microphone, [question], LEAD_S, AFTER_S);
const answer = await withPage(MICROPHONE.file(microphone), async (page) => {
  page.setDefaultTimeout(ANSWERED_WITHIN_MS);
  await page.goto(`http://localhost:${port}/?server=${server}`);
  await page.click("button");
  await page.waitForFunction(() => document.querySelector("audio").srcObject);
  await page.evaluate(record);
  await page.waitForFunction(() => document.querySelector("#answer").textContent.endsWith("."));
  await page.waitForFunction(() => window.recorded.some(({ samples }) => samples.some((x) => Math.abs(x) > 0.2)));
  return page.textContent("#answer");
});
pages.close();
console.log(answer);
