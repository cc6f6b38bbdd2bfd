// Runs in the page before its own scripts: a call's other end inside the page, controlled by the test.
// Only the network is replaced; microphone, peer connections, data channel and sound are the browser's own.
//
// window.standin: { events: the page's events but for those that ask for decisions, whose number is decisions, calls: posted offers, hangups: posted hang-ups, send(event), sound(on),
// level(): how loud the page's microphone was in the last second and a half, listenAnew(): not before now, close(),
// refuse: reply that refuses offers, if any }.

{
  const fetched = window.fetch;
  const location = "/v1/realtime/calls/rtc_standin";
  const absent = () => {
    throw new Error("there is no call");
  };
  /** @type {typeof window.standin} */
  const standin = {
    events: [],
    decisions: 0,
    calls: 0,
    hangups: 0,
    opened: Promise.resolve(),
    refuse: null,
    send: absent,
    sound: absent,
    level: absent,
    listenAnew: absent,
    close: absent,
  };
  window.standin = standin;

  /** @param {string} offer */
  async function answer(offer) {
    standin.calls += 1;
    const peer = new RTCPeerConnection();
    const context = new AudioContext();
    const voice = context.createMediaStreamDestination();
    const tone = new OscillatorNode(context, { frequency: 440 });
    const loudness = new GainNode(context, { gain: 0 });
    tone.connect(loudness).connect(voice);
    tone.start();
    standin.sound = (on) => { loudness.gain.value = on ? 0.3 : 0; };
    standin.close = () => peer.close();
    peer.addEventListener("track", ({ track }) => listen(new MediaStream([track])));
    standin.opened = new Promise((resolve) => {
      peer.addEventListener("datachannel", ({ channel }) => {
        channel.addEventListener("message", ({ data }) => {
          const event = JSON.parse(data);
          if (event.session?.repartee?.decisions) standin.decisions += 1;
          else standin.events.push(event);
        });
        standin.send = (event) => channel.send(JSON.stringify(event));
        channel.addEventListener("open", resolve);
      });
    });
    await peer.setRemoteDescription({ type: "offer", sdp: offer });
    peer.addTrack(voice.stream.getAudioTracks()[0], voice.stream);
    await peer.setLocalDescription();
    /** @type {Promise<void>} */
    const gathered = new Promise((resolve) => {
      if (peer.iceGatheringState === "complete") return resolve();
      peer.addEventListener("icegatheringstatechange", () => peer.iceGatheringState === "complete" && resolve());
    });
    await gathered;
    return new Response(peer.localDescription?.sdp, { status: 201, headers: { Location: location } });
  }

  /** Keeps the loudest samples of the stream over a time longer than the microphone's beep interval. @param {MediaStream} stream */
  function listen(stream) {
    const element = Object.assign(new Audio(), { srcObject: stream, muted: true });
    element.play();
    const context = new AudioContext();
    const analyser = new AnalyserNode(context, { fftSize: 8192 });
    context.createMediaStreamSource(stream).connect(analyser);
    const samples = new Float32Array(8192);
    /** @type {number[]} */
    const peaks = [];
    setInterval(() => {
      analyser.getFloatTimeDomainData(samples);
      peaks.push(Math.max(...samples));
      if (peaks.length > 15) peaks.shift();
    }, 100);
    standin.listenAnew = () => peaks.splice(0);
    standin.level = () => (peaks.length < 15 ? 0 : Math.max(...peaks));
  }

  window.fetch = async (url, options) => {
    if (url === "/v1/realtime/calls") {
      const { refuse } = standin;
      if (refuse) return Response.json({ error: refuse.error }, { status: refuse.status });
      return answer(String(options?.body));
    }
    if (url === `${location}/hangup`) {
      standin.hangups += 1;
      return new Response(null, { status: 200 });
    }
    return fetched(url, options);
  };
}
