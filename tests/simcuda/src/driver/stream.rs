//! Streams and events: queues of deferred work.

use super::code::{CuResult, Failure};
use super::objects::{DEFAULT_STREAM, Event, Stream, StreamWork};
use super::state::Driver;

/// Capacity of a stream; the work that exceeds it runs the whole queue, as a full queue blocks a caller.
const MOST: usize = 16_384;

impl Driver {
    /// Looks up a stream; fails if there is none.
    pub(super) fn stream(&mut self, handle: u64) -> Result<&mut Stream, Failure> {
        if handle == DEFAULT_STREAM {
            return Ok(self.streams.entry(handle).or_insert_with(|| Stream { blocking: true, ..Stream::default() }));
        }
        let missing = || Failure::new(CuResult::InvalidHandle, format!("there is no stream {handle:#x}"));
        self.streams.get_mut(&handle).ok_or_else(missing)
    }

    /// Creates a stream; returns its handle.
    pub fn create_stream(&mut self, blocking: bool) -> u64 {
        let handle = self.handle();
        self.streams.insert(handle, Stream { blocking, ..Stream::default() });
        handle
    }

    /// Destroys a stream after its work is done.
    pub fn destroy_stream(&mut self, handle: u64) -> Result<(), Failure> {
        if self.stream(handle)?.capture.is_some() {
            return Err(self.invalidate(handle, "the end of a stream that is captured"));
        }
        self.drain(handle)?;
        self.streams.remove(&handle);
        Ok(())
    }

    /// Enqueues work on a stream, or adds it to its capture.
    pub fn submit(&mut self, handle: u64, work: StreamWork) -> Result<(), Failure> {
        self.check_fault()?;
        if self.stream(handle)?.capture.is_some() {
            return self.capture_work(handle, work);
        }
        self.order_with_default(handle)?;
        let stream = self.stream(handle)?;
        stream.queue.push_back(work);
        if stream.queue.len() >= MOST { self.drain(handle) } else { Ok(()) }
    }

    /// Orders work of the default stream behind that of blocking streams, and theirs behind its own.
    fn order_with_default(&mut self, handle: u64) -> Result<(), Failure> {
        if !self.stream(handle)?.blocking {
            return Ok(());
        }
        let of_others = |other: u64| (handle == DEFAULT_STREAM) != (other == DEFAULT_STREAM);
        let pending = self.streams.iter().filter(|(other, stream)| {
            of_others(**other) && stream.blocking && stream.capture.is_none() && !stream.queue.is_empty()
        });
        let others: Vec<u64> = pending.map(|(other, _)| *other).collect();
        for home in others {
            // A private event.
            let event = self.handle();
            self.events.insert(event, Event { number: 1, home, ..Event::default() });
            self.stream(home)?.queue.push_back(StreamWork::Record { event, number: 1 });
            self.stream(handle)?.queue.push_back(StreamWork::Wait { event, number: 1, home });
        }
        Ok(())
    }

    /// Runs a stream's work, and the work of other streams that it waits for.
    pub(super) fn drain(&mut self, handle: u64) -> Result<(), Failure> {
        while self.advance(handle)? {}
        Ok(())
    }

    /// Runs a stream's next piece of work, and the work that it waits for; false if there is none.
    fn advance(&mut self, handle: u64) -> Result<bool, Failure> {
        let Some(work) = self.stream(handle)?.queue.pop_front() else { return Ok(false) };
        match work {
            StreamWork::Record { event, number } => {
                if let Some(event) = self.events.get_mut(&event) {
                    event.done = event.done.max(number);
                }
            }
            StreamWork::Wait { event, number, home } => {
                while self.events.get(&event).is_some_and(|event| event.done < number) {
                    // A record comes before its waits, so this terminates.
                    if !self.streams.contains_key(&home) || !self.advance(home)? {
                        break;
                    }
                }
            }
            work => self.execute(&work).map_err(|fault| self.record_fault(fault))?,
        }
        Ok(true)
    }

    /// Waits for a stream.
    pub fn synchronize(&mut self, handle: u64, thread: u64) -> Result<(), Failure> {
        self.check_fault()?;
        if self.stream(handle)?.capture.is_some() {
            return Err(self.invalidate(handle, "waiting for a stream that is captured"));
        }
        self.outside_capture("waiting for a stream", thread)?;
        if handle == DEFAULT_STREAM {
            self.order_with_default(handle)?;
        }
        self.drain(handle)
    }

    /// Waits for all streams.
    pub(super) fn synchronize_all(&mut self) -> Result<(), Failure> {
        self.check_fault()?;
        let handles: Vec<u64> = self.streams.keys().rev().copied().collect();
        handles.into_iter().try_for_each(|handle| self.drain(handle))
    }

    /// Waits for all work.
    pub fn synchronize_context(&mut self, thread: u64) -> Result<(), Failure> {
        self.outside_capture("waiting for the device", thread)?;
        self.synchronize_all()
    }

    fn event(&mut self, handle: u64) -> Result<&mut Event, Failure> {
        let missing = || Failure::new(CuResult::InvalidHandle, format!("there is no event {handle:#x}"));
        self.events.get_mut(&handle).ok_or_else(missing)
    }

    /// Creates an event; returns its handle.
    pub fn create_event(&mut self) -> u64 {
        let handle = self.handle();
        self.events.insert(handle, Event::default());
        handle
    }

    /// Destroys an event; its enqueued waits stay.
    pub fn destroy_event(&mut self, handle: u64) -> Result<(), Failure> {
        let event = self.event(handle)?;
        if event.done == event.number {
            self.events.remove(&handle);
        }
        Ok(())
    }

    /// Records an event behind the work of a stream.
    pub fn record(&mut self, handle: u64, stream: u64) -> Result<(), Failure> {
        self.event(handle)?;
        if let Some(capture) = self.capture_of(stream) {
            let nodes = self.last_nodes(capture, stream);
            self.event(handle)?.captured = Some((capture, nodes));
            return Ok(());
        }
        let event = self.event(handle)?;
        event.number += 1;
        event.home = stream;
        event.captured = None;
        let number = event.number;
        self.submit(stream, StreamWork::Record { event: handle, number })
    }

    /// Makes a stream wait for an event's last record.
    pub fn wait(&mut self, stream: u64, handle: u64) -> Result<(), Failure> {
        let event = self.event(handle)?;
        let (number, home, captured) = (event.number, event.home, event.captured.clone());
        match (captured, self.capture_of(stream)) {
            (Some((capture, nodes)), _) => self.join_capture(stream, capture, nodes),
            (None, Some(_)) if number > 0 => {
                let text = "waiting inside of a capture for an event that was recorded outside";
                Err(self.invalidate_with(stream, CuResult::CaptureIsolation, text))
            }
            (None, Some(_)) => Ok(()),
            (None, None) if number > 0 => self.submit(stream, StreamWork::Wait { event: handle, number, home }),
            (None, None) => self.stream(stream).map(drop),
        }
    }

    fn not_captured(&mut self, handle: u64) -> Result<(), Failure> {
        match self.event(handle)?.captured {
            Some(_) => Err(Failure::new(CuResult::CapturedEvent, "the event was recorded inside of a capture")),
            None => Ok(()),
        }
    }

    /// Waits for an event's last record.
    pub fn synchronize_event(&mut self, handle: u64, thread: u64) -> Result<(), Failure> {
        self.check_fault()?;
        self.not_captured(handle)?;
        self.outside_capture("waiting for an event", thread)?;
        loop {
            let event = self.event(handle)?;
            let home = event.home;
            if event.done >= event.number || !self.streams.contains_key(&home) || !self.advance(home)? {
                return Ok(());
            }
        }
    }

    /// Fails with "not ready" unless an event's last record is complete. Each query runs one piece of work of its stream, so that polling
    /// terminates.
    pub fn query(&mut self, handle: u64) -> Result<(), Failure> {
        self.check_fault()?;
        self.not_captured(handle)?;
        let event = self.event(handle)?;
        if event.done >= event.number {
            return Ok(());
        }
        let home = event.home;
        self.advance(home)?;
        Err(Failure::new(CuResult::NotReady, "the event is not complete"))
    }
}
