//! Thread pool: each closure runs once, results do not depend on the number of threads, and panics reach the caller.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use repartee_kernels::cpu::pool::Pool;

const THREADS: [usize; 4] = [1, 2, 3, 7];

#[test]
fn each_task_runs_exactly_once() {
    for threads in THREADS {
        let pool = Pool::new(threads).unwrap();
        assert_eq!(pool.threads(), threads);
        for count in [0, 1, 2, 100] {
            let ran: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            pool.run(count, |number| {
                ran[number].fetch_add(1, Ordering::Relaxed);
            });
            assert!(ran.iter().all(|ran| ran.load(Ordering::Relaxed) == 1), "{threads} threads, {count} tasks");
        }
        let mut items: Vec<usize> = (0..100).map(|i| 1000 * i).collect();
        pool.for_each(&mut items, |index, item| *item += index);
        assert!((0..100).all(|i| items[i] == 1001 * i), "an item met another's index");
    }
}

#[test]
fn join_lends_and_returns_data() {
    for threads in THREADS {
        let pool = Pool::new(threads).unwrap();
        let mut text = String::from("a");
        let numbers = [1, 2, 3];
        let (length, sum) = pool.join(
            || {
                text.push('b');
                text.len()
            },
            || numbers.iter().sum::<i32>(),
        );
        assert_eq!((length, sum, &text[..]), (2, 6, "ab"));
    }
}

#[test]
fn tasks_do_run_side_by_side() {
    // Every task waits for all others: a worker that misses its wake-up would leave them waiting.
    for threads in THREADS {
        let pool = Pool::new(threads).unwrap();
        let barrier = Barrier::new(threads);
        for _ in 0..500 {
            pool.run(threads, |_| {
                barrier.wait();
            });
        }
    }
}

#[test]
fn lowest_panic_reaches_the_caller() {
    for threads in THREADS {
        let pool = Pool::new(threads).unwrap();
        for _ in 0..20 {
            let ran = AtomicUsize::new(0);
            let panic = catch_unwind(AssertUnwindSafe(|| {
                pool.run(16, |number| {
                    ran.fetch_add(1, Ordering::Relaxed);
                    // Not `panic!`: that would print each one.
                    if number % 5 == 3 {
                        std::panic::resume_unwind(Box::new(number));
                    }
                });
            }));
            assert_eq!(panic.unwrap_err().downcast_ref(), Some(&3_usize), "{threads} threads");
            assert_eq!(ran.load(Ordering::Relaxed), 16, "a panic kept other tasks from running");
        }
        let second = || -> i32 { std::panic::resume_unwind(Box::new("second")) };
        let panic = catch_unwind(AssertUnwindSafe(|| pool.join(|| 1, second)));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"second"));
        assert_eq!(pool.join(|| 1, || 2), (1, 2), "the pool works on");
    }
}

#[test]
fn tasks_may_use_the_pool() {
    for threads in THREADS {
        let pool = Pool::new(threads).unwrap();
        let ran = AtomicUsize::new(0);
        // More tickets at once than the queue holds.
        pool.run(40, |_| {
            pool.run(30, |_| {
                let (a, b) = pool.join(|| ran.fetch_add(1, Ordering::Relaxed), || ran.fetch_add(1, Ordering::Relaxed));
                assert_ne!(a, b);
            });
        });
        assert_eq!(ran.load(Ordering::Relaxed), 2 * 40 * 30);
    }
}

#[test]
fn waiting_callers_help_deeper_regions() {
    let pool = Pool::new(2).unwrap();
    let caller = std::thread::current().id();
    // In the second run the caller of the outer region sleeps.
    for later in [Duration::ZERO, Duration::from_millis(3)] {
        for _ in 0..20 {
            let (outer, inner) = (Barrier::new(2), Barrier::new(2));
            pool.run(2, |_| {
                outer.wait();
                if std::thread::current().id() != caller {
                    spin_for(later);
                    // Only the caller of the outer region is free for the other task.
                    pool.run(2, |_| {
                        inner.wait();
                    });
                }
            });
        }
    }
}

#[test]
fn waiting_callers_take_no_other_region() {
    let pool = Pool::new(2).unwrap();
    let caller = std::thread::current().id();
    let (begun, offered) = (Barrier::new(3), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            begun.wait();
            let ran_by_caller = AtomicBool::new(false);
            pool.run(2, |_| {
                offered.store(true, Ordering::Release);
                ran_by_caller.fetch_or(std::thread::current().id() == caller, Ordering::Relaxed);
                spin_for(Duration::from_millis(40));
            });
            ran_by_caller.into_inner()
        });
        pool.run(2, |_| {
            begun.wait();
            while !offered.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            // The worker stays, so that the caller waits for it.
            if std::thread::current().id() != caller {
                spin_for(Duration::from_millis(20));
            }
        });
        assert!(!other.join().unwrap(), "what the caller waited for would have been late");
    });
}

fn spin_for(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn callers_may_share_a_pool() {
    let pool = Pool::new(3).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..500 {
                    let sum = AtomicUsize::new(0);
                    pool.run(5, |number| {
                        sum.fetch_add(number + round, Ordering::Relaxed);
                    });
                    assert_eq!(sum.load(Ordering::Relaxed), 10 + 5 * round);
                }
            });
        }
    });
}

#[test]
fn dropping_a_pool_ends_its_threads() {
    struct AtEnd(Arc<AtomicUsize>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local!(static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) });
    let ended = Arc::new(AtomicUsize::new(0));
    let pool = Pool::new(4).unwrap();
    let barrier = Barrier::new(4);
    let caller = std::thread::current().id();
    pool.run(4, |_| {
        barrier.wait();
        if std::thread::current().id() != caller {
            AT_END.set(Some(AtEnd(Arc::clone(&ended))));
        }
    });
    assert_eq!(ended.load(Ordering::Relaxed), 0);
    drop(pool);
    assert_eq!(ended.load(Ordering::Relaxed), 3, "a thread outlived its pool");
}
