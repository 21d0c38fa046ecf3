//! The methods that a device around another one hands on unchanged, by their names.
//!
//! A wrapper lists the methods that it does not change, so a reader sees at once which ones it
//! does. No method is forwarded without being listed: otherwise a wrapper could miss a method that
//! has a default, and no one would notice.

/// Inside of an implementation of [`Device`](crate::device::Device),
/// [`Queue`](crate::device::Queue), [`RxQueue`](crate::device::RxQueue) or
/// [`TxQueue`](crate::device::TxQueue) that wraps another one: `forward!(inner: reap, room);`
/// writes these methods, each a call of the same one of the field `inner`. List each method that
/// the wrapper does not change, those with a default too. `wait_fd` includes `arm`,
/// `ring_doorbell` includes `defer_doorbell`, and `prepost` includes `preposted` and
/// `fire_preposted`.
///
/// After `by_default` stand the methods that keep the default of the trait, which the wrapper needs
/// because it is made of methods that the wrapper does change: `forward!(inner: reap; by_default:
/// post_burst);`, or `forward!(by_default: post_burst);` alone. They are only named.
/// `tests/tests/repository/wrappers.rs` fails where a wrapper of this repository neither writes,
/// nor forwards, nor names a method.
///
/// ```
/// use wirepath::counters::Scope;
/// use wirepath::device::{DeviceError, Queue};
/// use wirepath::mem::Pool;
///
/// /// A queue that says when a worker opens it.
/// struct Announced<Q> {
///     inner: Q,
/// }
///
/// impl<Q: Queue> Queue for Announced<Q> {
///     type Rx = Q::Rx;
///     type Tx = Q::Tx;
///
///     fn open(self, pool: &Pool, scope: &Scope) -> Result<(Q::Rx, Q::Tx), DeviceError> {
///         println!("a worker opens its queue");
///         self.inner.open(pool, scope)
///     }
///
///     wirepath::forward!(inner: layout, buffers, region);
/// }
/// ```
#[macro_export]
macro_rules! forward {
    (by_default: $($kept:ident),+) => {};
    ($inner:ident: $($method:ident),+ $(; by_default: $($kept:ident),+)?) => {
        $($crate::forward!(@ $method $inner);)+
    };

    (@ name $inner:ident) => {
        fn name(&self) -> &str {
            self.$inner.name()
        }
    };
    (@ capabilities $inner:ident) => {
        fn capabilities(&self) -> $crate::device::Capabilities {
            self.$inner.capabilities()
        }
    };
    (@ steer $inner:ident) => {
        fn steer(
            &mut self,
            rule: &$crate::device::steering::Rule,
            idx: u16,
        ) -> Result<$crate::device::steering::RuleId, $crate::device::steering::SteerError> {
            self.$inner.steer(rule, idx)
        }
    };
    (@ unsteer $inner:ident) => {
        fn unsteer(
            &mut self,
            id: $crate::device::steering::RuleId,
        ) -> Result<(), $crate::device::steering::SteerError> {
            self.$inner.unsteer(id)
        }
    };
    (@ layout $inner:ident) => {
        fn layout(&self, frame_len_max: usize) -> $crate::mem::Layout {
            self.$inner.layout(frame_len_max)
        }
    };
    (@ buffers $inner:ident) => {
        fn buffers(&self) -> $crate::mem::Sizing {
            self.$inner.buffers()
        }
    };
    (@ region $inner:ident) => {
        fn region(
            &mut self,
            layout: $crate::mem::Layout,
            buffers: usize,
        ) -> Result<Option<$crate::mem::Region>, $crate::device::DeviceError> {
            self.$inner.region(layout, buffers)
        }
    };
    (@ state $inner:ident) => {
        fn state(&self) -> $crate::device::RxState {
            self.$inner.state()
        }
    };
    (@ wait_fd $inner:ident) => {
        fn wait_fd(&self) -> Option<std::os::fd::RawFd> {
            self.$inner.wait_fd()
        }

        fn arm(&mut self) {
            self.$inner.arm();
        }
    };
    (@ refresh_counters $inner:ident) => {
        fn refresh_counters(&mut self) {
            self.$inner.refresh_counters();
        }
    };
    (@ post_urgent $inner:ident) => {
        #[inline]
        fn post_urgent(&mut self, mbuf: $crate::mem::Mbuf) -> Result<(), $crate::mem::Mbuf> {
            self.$inner.post_urgent(mbuf)
        }
    };
    (@ post_burst $inner:ident) => {
        #[inline]
        fn post_burst(&mut self, burst: &mut $crate::mem::Burst, offload: $crate::device::Offload) -> usize {
            self.$inner.post_burst(burst, offload)
        }
    };
    (@ prepost $inner:ident) => {
        fn prepost(&mut self, frame: &[u8]) -> Option<$crate::device::Preposted> {
            self.$inner.prepost(frame)
        }

        #[inline]
        fn preposted(&mut self, which: $crate::device::Preposted) -> Option<&mut [u8]> {
            self.$inner.preposted(which)
        }

        #[inline]
        fn fire_preposted(&mut self, which: $crate::device::Preposted) -> bool {
            self.$inner.fire_preposted(which)
        }
    };
    (@ post_unmarked $inner:ident) => {
        fn post_unmarked(
            &mut self,
            mbuf: $crate::mem::Mbuf,
            offload: $crate::device::Offload,
        ) -> Result<(), $crate::mem::Mbuf> {
            self.$inner.post_unmarked(mbuf, offload)
        }
    };
    (@ dry_run $inner:ident) => {
        fn dry_run(&mut self, mbuf: $crate::mem::Mbuf, offload: $crate::device::Offload) {
            self.$inner.dry_run(mbuf, offload);
        }
    };
    (@ ring_doorbell $inner:ident) => {
        #[inline]
        fn ring_doorbell(&mut self, now: $crate::time::Instant) {
            self.$inner.ring_doorbell(now);
        }

        #[inline]
        fn defer_doorbell(&mut self, now: $crate::time::Instant) -> Option<std::sync::Arc<dyn $crate::device::Doorbell>> {
            self.$inner.defer_doorbell(now)
        }
    };
    (@ reap $inner:ident) => {
        #[inline]
        fn reap(&mut self) -> usize {
            self.$inner.reap()
        }
    };
    (@ room $inner:ident) => {
        fn room(&mut self) -> usize {
            self.$inner.room()
        }
    };
    (@ in_flight $inner:ident) => {
        fn in_flight(&self) -> usize {
            self.$inner.in_flight()
        }
    };
    (@ has_timestamps $inner:ident) => {
        fn has_timestamps(&self) -> bool {
            self.$inner.has_timestamps()
        }
    };
    (@ take_timestamp $inner:ident) => {
        fn take_timestamp(&mut self) -> Option<$crate::device::TxTimestamp> {
            self.$inner.take_timestamp()
        }
    };
}
