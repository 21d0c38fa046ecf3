//! Ends of lent queues, each on a thread of its own, which a hostile client may have wait for ever.
//! So there is a limit to the threads, and the ends beyond it wait for one.

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

/// Threads at a time, and ends that wait: as many as a broker has clients.
const RUNNING_MAX: usize = 128;
const WAITING_MAX: usize = 128;

type Destroy = Box<dyn FnOnce() + Send>;

/// What is being destroyed.
pub(super) struct Destructions {
    running: Arc<AtomicUsize>,
    running_max: usize,
    /// Never dropped: to drop one is to destroy it, and the caller does not wait for that.
    waiting: VecDeque<ManuallyDrop<Destroy>>,
}

/// One that runs.
struct Running(Arc<AtomicUsize>);

impl Destructions {
    pub(super) fn new() -> Self {
        Self { running: Arc::default(), running_max: RUNNING_MAX, waiting: VecDeque::new() }
    }

    pub(super) fn add(&mut self, destroy: impl FnOnce() + Send + 'static) {
        self.waiting.push_back(ManuallyDrop::new(Box::new(destroy)));
        self.start();
    }

    /// Starts those that wait, as far as there are threads for them.
    pub(super) fn start(&mut self) {
        while self.running.load(Ordering::Acquire) < self.running_max
            && let Some(destroy) = self.waiting.pop_front()
        {
            self.running.fetch_add(1, Ordering::AcqRel);
            let running = Running(Arc::clone(&self.running));
            // Without a thread the objects stay until the broker ends: they are reset, and no rule
            // leads to them.
            let _ = thread::Builder::new().name("lent queue".into()).spawn(move || {
                let _running = running;
                ManuallyDrop::into_inner(destroy)();
            });
        }
    }

    /// How many have not ended.
    pub(super) fn count(&self) -> usize {
        self.running.load(Ordering::Acquire) + self.waiting.len()
    }

    /// Whether so many wait that there are to be no more queues.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn ends_of_queues_that_never_come_about_take_no_more_threads_than_there_may_be() {
        let mut destructions = Destructions { running_max: 2, ..Destructions::new() };
        let ((begin, begun), (done, is_done)) = (channel(), channel::<()>());
        let is_done = Arc::new(std::sync::Mutex::new(is_done));
        for number in 0..2 + WAITING_MAX {
            assert!(!destructions.is_full());
            let (begin, is_done) = (begin.clone(), Arc::clone(&is_done));
            destructions.add(move || {
                begin.send(number).unwrap();
                // Until this one may end, or the test does.
                let _ = is_done.lock().unwrap().recv();
            });
        }
        let first: usize = [begun.recv(), begun.recv()].into_iter().map(Result::unwrap).sum();
        assert_eq!(first, 1, "0 and 1");
        assert!(destructions.is_full() && destructions.count() == 2 + WAITING_MAX);
        done.send(()).unwrap();
        while destructions.waiting.len() == WAITING_MAX {
            destructions.start();
            thread::yield_now();
        }
        assert_eq!((begun.recv(), destructions.count()), (Ok(2), 1 + WAITING_MAX));
    }
}
