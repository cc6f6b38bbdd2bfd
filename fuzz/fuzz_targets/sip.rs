//! `cargo fuzz run sip`: the target of this name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use repartee_testkit::memory::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fuzz_target!(|input: &[u8]| repartee_fuzz_targets::SIP.check_timed(input));
