// Downloads: the transcript as text, and the recording of both sides.

import { $ } from "./view.js";

/**
 * Makes the buttons work. `recorder` gives the sound's recorder, or null. Call `offer()` whenever there may be more or less to
 * take.
 */
export function offerDownloads(transcript, recorder) {
  $("save-transcript").addEventListener("click", () => {
    save(new Blob([transcript.text()], { type: "text/plain;charset=utf-8" }), "txt");
  });
  $("save-sound").addEventListener("click", async () => {
    const { blob, ending } = await recorder().sound();
    save(blob, ending);
  });
  return {
    offer() {
      $("tools").hidden = transcript.turns.length === 0;
      $("save-sound").disabled = !recorder();
    },
  };
}

function save(blob, ending) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  // 2026-11-22T14-05-00, in UTC.
  link.download = `repartee-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.${ending}`;
  link.click();
  // The download has begun once the click was dealt with.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
