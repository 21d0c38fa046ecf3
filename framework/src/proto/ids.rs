//! The small numbers by which the machines name things to each other and to the application.

/// Who receives: an application's name for one of its sockets, chosen by the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId(pub u32);

/// Where a packet arrived: a network interface or a VLAN on one, numbered by the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceId(pub u32);

impl InterfaceId {
    /// In a membership: whichever interface a datagram arrives on. Never the interface of a packet.
    pub const ANY: Self = Self(u32::MAX);
}

/// Names one membership's filter in `SourceFilters`, valid until that membership is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilterId(pub(super) u32);

impl FilterId {
    /// Accepts every source on every interface, without a look at any filter: unicast, and
    /// any-source groups of a host with one interface.
    pub const ANY: Self = Self(u32::MAX);

    /// True where nobody needs to be asked.
    #[inline]
    pub const fn is_any(self) -> bool {
        self.0 == Self::ANY.0
    }
}
