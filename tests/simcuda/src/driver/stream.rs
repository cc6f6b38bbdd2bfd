//! Streams and events: queues whose work waits until somebody needs it.

use std::collections::VecDeque;

use super::{CuResult, DEFAULT_STREAM, Driver, Failure, StreamWork};

/// Pieces of work that a stream holds at most; one more carries all of them out, as a full queue makes a caller wait.
const MOST: usize = 16_384;

/// A stream.
#[derive(Debug, Default)]
pub struct Stream {
    /// Work that nobody has waited for.
    pub queue: VecDeque<StreamWork>,
    /// Whether it is in order with the default stream.
    pub blocking: bool,
    /// The capture that it takes part in.
    pub capture: Option<u64>,
}

/// An event.
#[derive(Debug, Default)]
pub struct Event {
    /// The last record's number; 0 if there is none.
    pub number: u64,
    /// The last record that is complete.
    pub done: u64,
    /// The last record's stream.
    pub home: u64,
    /// The capture in which it was last recorded, and the nodes that it stands behind.
    pub captured: Option<(u64, Vec<usize>)>,
}

impl Driver {
    /// A stream that is there.
    pub(super) fn stream(&mut self, handle: u64) -> Result<&mut Stream, Failure> {
        if handle == DEFAULT_STREAM {
            return Ok(self.streams.entry(handle).or_insert_with(|| Stream { blocking: true, ..Stream::default() }));
        }
        let missing = || Failure::new(CuResult::InvalidHandle, format!("there is no stream {handle:#x}"));
        self.streams.get_mut(&handle).ok_or_else(missing)
    }

    /// A new stream.
    pub fn create_stream(&mut self, blocking: bool) -> u64 {
        let handle = self.handle();
        self.streams.insert(handle, Stream { blocking, ..Stream::default() });
        handle
    }

    /// Ends a stream when its work is done.
    pub fn destroy_stream(&mut self, handle: u64) -> Result<(), Failure> {
        if self.stream(handle)?.capture.is_some() {
            return Err(self.invalidate(handle, "the end of a stream that is captured"));
        }
        self.drain(handle)?;
        self.streams.remove(&handle);
        Ok(())
    }

    /// Puts work on a stream, or into its capture.
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

    /// Work of the default stream comes behind that of the streams which are in order with it, and theirs behind its own.
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
            // An event that nobody else knows.
            let event = self.handle();
            self.events.insert(event, Event { number: 1, home, ..Event::default() });
            self.stream(home)?.queue.push_back(StreamWork::Record { event, number: 1 });
            self.stream(handle)?.queue.push_back(StreamWork::Wait { event, number: 1, home });
        }
        Ok(())
    }

    /// Carries out a stream's work, and what it waits for in others.
    pub(super) fn drain(&mut self, handle: u64) -> Result<(), Failure> {
        while self.advance(handle)? {}
        Ok(())
    }

    /// Carries out a stream's next piece of work, and what it waits for; false if there is none.
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
                    // A record comes before its waits, so that this ends.
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

    /// Waits for everything.
    pub fn synchronize_context(&mut self, thread: u64) -> Result<(), Failure> {
        self.outside_capture("waiting for the device", thread)?;
        self.synchronize_all()
    }

    fn event(&mut self, handle: u64) -> Result<&mut Event, Failure> {
        let missing = || Failure::new(CuResult::InvalidHandle, format!("there is no event {handle:#x}"));
        self.events.get_mut(&handle).ok_or_else(missing)
    }

    /// A new event.
    pub fn create_event(&mut self) -> u64 {
        let handle = self.handle();
        self.events.insert(handle, Event::default());
        handle
    }

    /// Forgets an event; waits for it that are on a stream stay.
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

    /// Lets a stream wait for an event's last record.
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

    /// Whether an event's last record is complete. Asking lets its stream go on by one piece of work, so that asking again and
    /// again ends.
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
