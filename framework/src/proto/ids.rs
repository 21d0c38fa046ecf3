//! The small numbers by which machines and application name things to each other.

/// The receiver: an application's name for one of its sockets, chosen by the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId(pub u32);

/// The interface where a packet arrived: a network interface or a VLAN on one, numbered by the
/// host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceId(pub u32);

impl InterfaceId {
    /// In a membership: any interface. Never the interface of a packet.
    pub const ANY: Self = Self(u32::MAX);
}

/// Names one membership's filter in `SourceFilters`; valid until that membership ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilterId(pub(super) u32);

impl FilterId {
    /// Accepts every source on every interface without reading a filter: unicast, and any-source
    /// groups of a host with one interface.
    pub const ANY: Self = Self(u32::MAX);

    /// True where no filter needs to be checked.
    #[inline]
    pub const fn is_any(self) -> bool {
        self.0 == Self::ANY.0
    }
}
