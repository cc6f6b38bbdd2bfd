"""Records offers of GStreamer's `webrtcbin`, with Debian's own Python. Usage: record_gstreamer_offers.py FOLDER

gateway/sdp/tests/offers/README.md says which.
"""

import pathlib
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstWebRTC", "1.0")
from gi.repository import Gst, GstWebRTC  # noqa: E402, F401 (its types are those of the offer)

AUDIO = (
    "audiotestsrc is-live=true wave=silence ! audioconvert ! audioresample ! opusenc ! rtpopuspay pt=97 ! "
    "application/x-rtp,media=audio,encoding-name=OPUS,payload=97 ! peer."
)
VARIANTS = {
    "gstreamer": ("none", True),
    "gstreamer-max-bundle": ("max-bundle", True),
    "gstreamer-no-channel": ("max-bundle", False),
}


def offer(policy: str, has_channel: bool) -> str:
    """Makes an offer."""
    pipeline = Gst.parse_launch(f"webrtcbin name=peer bundle-policy={policy} {AUDIO}")
    peer = pipeline.get_by_name("peer")
    pipeline.set_state(Gst.State.READY)
    channel = peer.emit("create-data-channel", "oai-events", None) if has_channel else None
    pipeline.set_state(Gst.State.PLAYING)
    pipeline.get_state(5 * Gst.SECOND)
    promise = Gst.Promise.new()
    peer.emit("create-offer", None, promise)
    promise.wait()
    # The reply owns the offer.
    reply = promise.get_reply()
    text = reply.get_value("offer").sdp.as_text()
    pipeline.set_state(Gst.State.NULL)
    del channel
    return text


if __name__ == "__main__":
    Gst.init(None)
    print(Gst.version_string())
    for name, (policy, has_channel) in VARIANTS.items():
        (pathlib.Path(sys.argv[1]) / f"{name}.sdp").write_text(offer(policy, has_channel), newline="")
