"""Records offers of `aiortc`. Usage: record_offers.py FOLDER. gateway/sdp/tests/offers/README.md says which."""

import asyncio
import pathlib
import sys

import aiortc
from aiortc import RTCBundlePolicy, RTCConfiguration, RTCPeerConnection

VARIANTS = {
    "aiortc": (RTCBundlePolicy.BALANCED, ["audio", "channel"]),
    "aiortc-max-bundle": (RTCBundlePolicy.MAX_BUNDLE, ["audio", "channel"]),
    "aiortc-max-compat-video": (RTCBundlePolicy.MAX_COMPAT, ["audio", "video", "channel"]),
    "aiortc-two-audio": (RTCBundlePolicy.BALANCED, ["audio", "audio", "channel"]),
}


async def main(folder: pathlib.Path) -> None:
    print(f"aiortc {aiortc.__version__}")
    for name, (policy, media) in VARIANTS.items():
        peer = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=policy))
        for kind in media:
            if kind == "channel":
                peer.createDataChannel("oai-events")
            else:
                peer.addTransceiver(kind)
        await peer.setLocalDescription(await peer.createOffer())
        (folder / f"{name}.sdp").write_text(peer.localDescription.sdp, newline="")
        await peer.close()


asyncio.run(main(pathlib.Path(sys.argv[1])))
