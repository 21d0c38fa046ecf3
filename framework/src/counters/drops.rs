//! Named drop reasons: one counter for each, so that nothing is dropped anonymously.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::counter::bump;
use super::memory::WordsHandle;

/// Why a node or device drops: an enum whose variants have a fixed order and names for the
/// operator. [`drop_reasons!`](crate::drop_reasons) generates the enum and this implementation.
pub trait DropReason: Copy + fmt::Debug {
    /// The names in order of [`index`](Self::index): short, lower case, words joined by `_`.
    const NAMES: &'static [&'static str];

    /// This reason's place in [`NAMES`](Self::NAMES).
    fn index(self) -> usize;
}

/// Declares the drop reasons of one node or device as an enum.
///
/// ```
/// wirepath::drop_reasons! {
///     /// Why the Ethernet node drops a frame.
///     pub enum EthernetDrop {
///         /// Fewer bytes than a header.
///         TooShort => "too_short",
///         UnknownEtherType => "unknown_ethertype",
///     }
/// }
/// use wirepath::counters::DropReason;
/// assert_eq!(EthernetDrop::NAMES[EthernetDrop::TooShort.index()], "too_short");
/// ```
///
/// The last entry may embed another list, whose names follow: `..Ethernet(EthernetDrop)` makes a
/// variant `Ethernet` with a reason of that list, and the conversion from it.
///
/// ```
/// # wirepath::drop_reasons! { pub enum EthernetDrop { TooShort => "too_short" } }
/// wirepath::drop_reasons! {
///     /// Why my node drops a frame.
///     pub enum MyDrop {
///         TooLate => "too_late",
///         ..Ethernet(EthernetDrop),
///     }
/// }
/// use wirepath::counters::DropReason;
/// assert_eq!(MyDrop::NAMES, ["too_late", "too_short"]);
/// assert_eq!(MyDrop::from(EthernetDrop::TooShort).index(), 1);
/// ```
#[macro_export]
macro_rules! drop_reasons {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident => $text:literal),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $(
                $(#[$variant_meta])*
                #[doc = concat!("\n\nCounted as `drop/", $text, "`.")]
                $variant,
            )+
        }

        impl $crate::counters::DropReason for $name {
            const NAMES: &'static [&'static str] = &[$($text),+];

            #[inline(always)]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident => $text:literal,)+
            ..$embedded:ident($list:ty) $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $(
                $(#[$variant_meta])*
                #[doc = concat!("\n\nCounted as `drop/", $text, "`.")]
                $variant,
            )+
            /// A reason of another list, counted by its name there.
            $embedded($list),
        }

        impl $crate::counters::DropReason for $name {
            const NAMES: &'static [&'static str] = &{
                const OWN: &[&str] = &[$($text),+];
                const OTHERS: &[&str] = <$list as $crate::counters::DropReason>::NAMES;
                let mut names = [""; OWN.len() + OTHERS.len()];
                let mut idx = 0;
                while idx < names.len() {
                    names[idx] = if idx < OWN.len() { OWN[idx] } else { OTHERS[idx - OWN.len()] };
                    idx += 1;
                }
                names
            };

            #[inline(always)]
            fn index(self) -> usize {
                enum Own {
                    $($variant),+
                }
                const OWN_COUNT: usize = [$($text),+].len();
                match self {
                    $(Self::$variant => Own::$variant as usize,)+
                    Self::$embedded(reason) => OWN_COUNT + $crate::counters::DropReason::index(reason),
                }
            }
        }

        impl From<$list> for $name {
            #[inline(always)]
            fn from(reason: $list) -> Self {
                Self::$embedded(reason)
            }
        }
    };
}

/// The drop counters of one node or device, a word per reason. One writer, like
/// [`Counter`](super::Counter).
pub struct Drops<R> {
    words: WordsHandle<[AtomicU64]>,
    reasons: PhantomData<fn(R)>,
}

impl<R: DropReason> Drops<R> {
    /// `words` holds at least one word for each reason.
    pub(super) fn new(words: WordsHandle<[AtomicU64]>) -> Self {
        assert!(words.len() >= R::NAMES.len(), "a word for each drop reason");
        Self { words, reasons: PhantomData }
    }

    /// Counts one packet that is dropped for `reason`. As cheap as a counter.
    #[inline(always)]
    pub fn count(&mut self, reason: R) {
        bump(&self.words[reason.index()], 1);
    }

    /// Counts `n` packets dropped for one `reason`.
    #[inline(always)]
    pub fn count_many(&mut self, reason: R, n: u64) {
        bump(&self.words[reason.index()], n);
    }

    /// Packets dropped for `reason`.
    pub fn get(&self, reason: R) -> u64 {
        self.words[reason.index()].load(Relaxed)
    }

    /// Packets dropped for any reason.
    pub fn total(&self) -> u64 {
        self.iter().fold(0, |sum, (_, dropped)| sum.wrapping_add(dropped))
    }

    /// Each reason's name and count, in declaration order, zeros included.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        R::NAMES.iter().zip(self.words.iter()).map(|(&name, word)| (name, word.load(Relaxed)))
    }
}

impl<R: DropReason> fmt::Debug for Drops<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().filter(|(_, dropped)| *dropped > 0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::counters::Block;

    drop_reasons! {
        /// Why the test drops.
        enum TestDrop {
            TooShort => "too_short",
            TooLong => "too_long",
        }
    }

    #[test]
    fn each_reason_has_its_own_counter() {
        let block = Block::heap();
        let mut drops = block.scope("worker0").scope("ethernet").drops::<TestDrop>();
        drops.count(TestDrop::TooLong);
        drops.count_many(TestDrop::TooLong, 4);
        drops.count(TestDrop::TooShort);

        assert_eq!(drops.total(), 6);
        assert_eq!(drops.get(TestDrop::TooLong), 5);
        assert_eq!(drops.iter().collect::<Vec<_>>(), [("too_short", 1), ("too_long", 5)]);
        assert_eq!(block.snapshot().count("worker0/ethernet/drop/too_long"), Some(5));
        assert_eq!(block.check(), Ok(()));
    }

    drop_reasons! {
        /// Why another test drops.
        enum OuterDrop {
            TooLate => "too_late",
            TooSoon => "too_soon",
            ..Inner(TestDrop),
        }
    }

    #[test]
    fn embedded_list_is_counted_by_its_own_names() {
        let block = Block::heap();
        let mut drops = block.scope("node").drops::<OuterDrop>();
        drops.count(OuterDrop::TooSoon);
        drops.count_many(TestDrop::TooLong.into(), 2);
        let expected = [("too_late", 0), ("too_soon", 1), ("too_short", 0), ("too_long", 2)];
        assert_eq!(drops.iter().collect::<Vec<_>>(), expected);
        assert_eq!(block.snapshot().count("node/drop/too_long"), Some(2));
        drops.count(OuterDrop::TooLate);
        assert_eq!(drops.get(OuterDrop::TooLate), 1);
    }

    #[test]
    fn debug_shows_what_was_dropped_only() {
        let mut drops = Block::heap().scope("n").drops::<TestDrop>();
        drops.count(TestDrop::TooShort);
        assert_eq!(format!("{drops:?}"), r#"{"too_short": 1}"#);
    }
}
