// Records offers of Firefox: node record_firefox_offers.mjs FOLDER. gateway/sdp/tests/offers/README.md says which.

import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { withFirefox } from "./firefox.mjs";

/** @import { AddressInfo } from "node:net" */
/** @typedef {{ order: string[], direction?: RTCRtpTransceiverDirection, policy?: RTCBundlePolicy }} Variant */

/** Sections of each offer, in the order in which the page asks for them. @type {Record<string, Variant>} */
const VARIANTS = {
  firefox: { order: ["audio", "channel"] },
  "firefox-video-first": { order: ["video", "audio", "channel"] },
  "firefox-max-bundle": { order: ["audio", "channel"], policy: "max-bundle" },
  "firefox-recvonly": { order: ["audio", "channel"], direction: "recvonly" },
};

/** Runs in the page: writes an offer with all candidates. @param {Variant} variant */
async function offer({ order, direction = "sendrecv", policy = "balanced" }) {
  const pc = new RTCPeerConnection({ bundlePolicy: policy });
  const [track] = (await navigator.mediaDevices.getUserMedia({ audio: true })).getAudioTracks();
  for (const section of order) {
    if (section === "channel") pc.createDataChannel("oai-events");
    else if (section === "video") pc.addTransceiver("video");
    else pc.addTransceiver(direction === "recvonly" ? "audio" : track.clone(), { direction });
  }
  await pc.setLocalDescription();
  if (pc.iceGatheringState !== "complete") {
    await new Promise((done) => {
      pc.onicegatheringstatechange = () => pc.iceGatheringState === "complete" && done(undefined);
    });
  }
  const sdp = pc.localDescription?.sdp ?? "";
  pc.close();
  return sdp;
}

const [folder] = process.argv.slice(2);
const site = createServer((_, answer) => answer.writeHead(200, { "Content-Type": "text/html" }).end("<!doctype html>"));
await once(site.listen(0, "127.0.0.1"), "listening");
const { port } = /** @type {AddressInfo} */ (site.address());
try {
  await withFirefox(async (page, version) => {
    console.log(`Firefox ${version}`);
    await page.goto(`http://localhost:${port}/`);
    for (const [name, variant] of Object.entries(VARIANTS)) {
      await writeFile(`${folder}/${name}.sdp`, await page.evaluate(offer, variant));
    }
  });
} finally {
  site.close();
  site.closeAllConnections();
}
