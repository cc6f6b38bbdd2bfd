//! Stream capture: work becomes nodes of a graph, and calls that need immediate effects are refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::code::{CuResult, Failure};
use super::objects::{Capture, CaptureMode, DEFAULT_STREAM, Graph, Node, StreamWork};
use super::state::Driver;

impl Driver {
    /// Returns the capture that a stream takes part in.
    pub(super) fn capture_of(&self, stream: u64) -> Option<u64> {
        self.streams.get(&stream)?.capture
    }

    /// Refuses calls that no capture allows, and invalidates the captures in scope.
    pub(super) fn outside_capture(&mut self, what: &str, thread: u64) -> Result<(), Failure> {
        self.check_fault()?;
        let concerned = |capture: &&mut Capture| match capture.mode {
            CaptureMode::Global => true,
            CaptureMode::ThreadLocal => capture.thread == thread,
            CaptureMode::Relaxed => false,
        };
        let text = format!("{what} inside of a capture");
        let mut refused = Ok(());
        for capture in self.captures.values_mut().filter(concerned) {
            capture.invalidated.get_or_insert_with(|| text.clone());
            refused = Err(Failure::new(CuResult::CaptureUnsupported, text.clone()));
        }
        refused
    }

    /// Invalidates a stream's capture.
    pub(super) fn invalidate(&mut self, stream: u64, text: &str) -> Failure {
        self.invalidate_with(stream, CuResult::CaptureUnsupported, text)
    }

    pub(super) fn invalidate_with(&mut self, stream: u64, code: CuResult, text: &str) -> Failure {
        if let Some(capture) = self.capture_of(stream).and_then(|handle| self.captures.get_mut(&handle)) {
            capture.invalidated.get_or_insert_with(|| text.to_owned());
        }
        Failure::new(code, text)
    }

    /// Begins a capture of a stream.
    pub fn begin_capture(&mut self, stream: u64, mode: CaptureMode, thread: u64) -> Result<(), Failure> {
        self.check_fault()?;
        if stream == DEFAULT_STREAM {
            return Err(Failure::new(CuResult::CaptureUnsupported, "the default stream cannot be captured"));
        }
        let handle = self.handle();
        let found = self.stream(stream)?;
        if found.capture.is_some() {
            return Err(Failure::new(CuResult::IllegalState, "the stream is captured already"));
        }
        found.capture = Some(handle);
        let tips = BTreeMap::from([(stream, Vec::new())]);
        let capture = Capture { origin: stream, mode, thread, invalidated: None, nodes: Vec::new(), tips };
        self.captures.insert(handle, capture);
        Ok(())
    }

    /// Returns 0 if a stream is not captured, 1 if it is, 2 if its capture is invalidated.
    pub fn capture_status(&mut self, stream: u64) -> Result<u32, Failure> {
        self.stream(stream)?;
        let capture = self.capture_of(stream).and_then(|handle| self.captures.get(&handle));
        Ok(capture.map_or(0, |capture| if capture.invalidated.is_some() { 2 } else { 1 }))
    }

    /// Returns the dependencies of a stream's next node.
    pub(super) fn last_nodes(&self, capture: u64, stream: u64) -> Vec<usize> {
        let tips = self.captures.get(&capture).and_then(|capture| capture.tips.get(&stream));
        tips.cloned().unwrap_or_default()
    }

    /// Adds a node to a stream's capture.
    pub(super) fn capture_work(&mut self, stream: u64, work: StreamWork) -> Result<(), Failure> {
        if matches!(work, StreamWork::Graph(_)) {
            return Err(self.invalidate_with(
                stream,
                CuResult::NotSupported,
                "a graph inside of a graph is not covered",
            ));
        }
        let Some(capture) = self.capture_of(stream).and_then(|handle| self.captures.get_mut(&handle)) else {
            return Err(Failure::new(CuResult::IllegalState, "the stream is not captured"));
        };
        if let Some(text) = &capture.invalidated {
            return Err(Failure::new(CuResult::CaptureInvalidated, format!("the capture is spoiled by {text}")));
        }
        let tips = capture.tips.entry(stream).or_default();
        let behind = std::mem::replace(tips, vec![capture.nodes.len()]);
        capture.nodes.push(Node { work, dependencies: behind });
        Ok(())
    }

    /// Makes a stream's next node depend on an event's nodes; the stream joins the capture.
    pub(super) fn join_capture(&mut self, stream: u64, handle: u64, nodes: Vec<usize>) -> Result<(), Failure> {
        let found = self.stream(stream)?;
        if found.capture.is_some_and(|other| other != handle) {
            return Err(self.invalidate_with(
                stream,
                CuResult::CaptureIsolation,
                "waiting for an event of another capture",
            ));
        }
        let Some(capture) = self.captures.get_mut(&handle) else {
            return Err(Failure::new(CuResult::CapturedEvent, "the event was recorded in a capture that has ended"));
        };
        capture.tips.entry(stream).or_default().extend(nodes);
        self.stream(stream)?.capture = Some(handle);
        Ok(())
    }

    /// Ends a capture and returns its graph's handle.
    pub fn end_capture(&mut self, stream: u64) -> Result<u64, Failure> {
        self.stream(stream)?;
        let not_captured = || Failure::new(CuResult::IllegalState, "the stream is not captured");
        let handle = self.capture_of(stream).ok_or_else(not_captured)?;
        if self.captures.get(&handle).is_some_and(|capture| capture.origin != stream) {
            return Err(self.invalidate_with(
                stream,
                CuResult::CaptureUnmatched,
                "the capture began in another stream",
            ));
        }
        let capture = self.captures.remove(&handle).ok_or_else(not_captured)?;
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(handle)) {
            stream.capture = None;
        }
        if let Some(text) = capture.invalidated {
            return Err(Failure::new(CuResult::CaptureInvalidated, format!("the capture is spoiled by {text}")));
        }
        let graph = Graph::new(capture.nodes);
        let own = capture.tips.get(&stream).map_or(&[][..], Vec::as_slice);
        let joined = graph.before(own);
        if capture.tips.values().flatten().any(|tip| !joined[*tip]) {
            let text = "a stream that joined the capture is not waited for by the stream that began it";
            return Err(Failure::new(CuResult::CaptureUnjoined, text));
        }
        let handle = self.handle();
        self.graphs.insert(handle, Arc::new(graph));
        Ok(handle)
    }
}
