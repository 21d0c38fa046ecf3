//! Compares the capabilities reported by device and firmware with the requested features: each
//! feature is enabled, left out with a reason, or refused with a reason. Nothing is assumed: a
//! feature that a device does not report is absent (mlx5.md 1.4).

use rdma_core_sys::verbs::{Compression, Context, DeviceAttributes, Mlx5Attributes, StridingRequest, VerbsError};

use super::rq_shape::RqShape;
use crate::device::mlx5::config::{Feature, Mlx5Config, Pace, RssFields};
use crate::device::mlx5::error::Mlx5SetupError;

/// The device's reported capabilities.
#[derive(Clone, Debug)]
pub(crate) struct DeviceCapabilities {
    pub(crate) device: DeviceAttributes,
    pub(crate) mlx5: Mlx5Attributes,
    /// Whether the kernel relates the device's clock to the wall clock.
    pub(crate) clock_is_related: bool,
    /// Whether relaxed ordering slows down the processor's PCIe.
    pub(crate) is_slow_relaxed: bool,
}

/// A capability, or the reason why it is absent.
type Capability<T> = Result<T, String>;

/// The features that a queue is created with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EnabledFeatures {
    /// Checksums are verified and filled in.
    pub(crate) checksum: bool,
    /// Bytes of a TCP payload that TSO segments; 0 without TSO.
    pub(crate) tso_len_max: usize,
    /// Header bytes that a WQE must carry inline.
    pub(crate) inline_len_min: u8,
    pub(crate) multi_packet: bool,
    pub(crate) stamps: Option<TimestampFormat>,
    pub(crate) vlan_stripping: bool,
    pub(crate) compression: Option<Compression>,
    pub(crate) striding: Option<StridingRequest>,
    pub(crate) pace: Option<Pace>,
    /// Memory is registered with relaxed ordering.
    pub(crate) relaxed_ordering: bool,
    /// Requested features that are absent, each with the reason.
    pub(crate) left_out: Vec<(&'static str, String)>,
}

/// The kind of timestamps in CQEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimestampFormat {
    /// Ticks of the device's clock, requested as such.
    Ticks,
    /// Ticks of the device's clock, to be converted to wall clock time.
    Wall,
    /// Seconds and nanoseconds.
    RealTime,
}

/// Inline header bytes of each WQE on a device that requires some (mlx5.md 1.4: libmlx5 writes 18
/// or none).
const INLINE_LEN: u8 = 18;
/// The size of a striding WQE, if the device lets us choose, as log2: 512 strides of 256 bytes.
/// Smaller strides waste less memory after short frames, but a long frame takes more of them.
const STRIDE_LEN_LOG: u8 = 8;
const STRIDE_COUNT_LOG: u8 = 9;
/// Log2 of the maximum stride length and number of strides: a CQE has 15 bits for each
/// (mlx5.md 2.9).
const STRIDES_LOG_MAX: u8 = 15;
/// Maximum number of WQEs: positions have 16 bits, and a full ring must differ from an empty one.
const WQES_MAX: u32 = 1 << 15;
/// Maximum memory of a striding ring. A ring of 8192 frames of 16 KiB has 256 MiB; a ring can
/// exceed the limit only on a device whose strides are too large for it.
const MPRQ_BUFFER_LEN_MAX: u64 = 1 << 30;
/// Bytes of the longest frame by default: Ethernet's, with a VLAN tag.
const FRAME_LEN_USUAL: usize = 1518;
/// Frames of the longest compressed session that we can read (mlx5.md 1.4).
const SESSION_FRAMES_MAX: u32 = 64;
/// Bits of `IBV_RX_HASH_*`: source and destination address of IPv4, both ports of TCP, both of UDP
/// (mlx5.md 3.6).
pub(crate) const HASH_ADDRESSES: u64 = 0x03;
pub(crate) const HASH_TCP_PORTS: u64 = 0x30;
pub(crate) const HASH_UDP_PORTS: u64 = 0xc0;

/// The limits of a striding ring.
struct StridingLimits {
    wqes_max: u32,
    cqes_max: u32,
    /// Bytes.
    len_max: u64,
}

impl DeviceCapabilities {
    /// Queries the device.
    pub(crate) fn read(context: &Context) -> Result<Self, VerbsError> {
        let clock_is_related = context.clock_info().is_ok_and(|clock| clock.raw().mult != 0);
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let is_slow_relaxed = is_slow_relaxed(&processor);
        Ok(Self { device: context.attributes()?, mlx5: context.mlx5_attributes()?, clock_is_related, is_slow_relaxed })
    }

    /// Selects the features of `config` that the device `name` has; `config` gives the frame
    /// length.
    ///
    /// # Errors
    /// It requires a feature that is absent.
    pub(crate) fn choose(&self, name: &str, config: &Mlx5Config) -> Result<EnabledFeatures, Mlx5SetupError> {
        self.check_sizes(name, config)?;
        if config.hash().is_some() {
            self.spreading(config)
                .map_err(|why| self.lacking(name, "spreading by a hash", why, "use RxDistribution::Rules"))?;
        }
        let mut left_out = Vec::new();
        let mut pick = Pick { capabilities: self, name, left_out: &mut left_out };
        let stamps = pick.feature(config.timestamps, "time stamps", || self.stamping(config.raw_timestamps))?;
        let striding = pick.feature(config.striding, "striding receive queues", || self.striding_for(config))?;
        let vlan_stripping = pick.feature(config.vlan_stripping, "VLAN stripping", || self.vlan_stripping())?;
        let multi_packet = pick.feature(config.multi_packet_send, "multi-packet sends", || self.multi_packet())?;
        let compression = match (config.compression, stamps) {
            (Feature::IfSupported, Some(_)) => {
                pick.left_out.push(("compressed completions", "their frames would share time stamps".into()));
                None
            }
            (wanted, _) => {
                let is_striding = striding.is_some();
                pick.feature(wanted, "compressed completions", || {
                    self.compression(is_striding, config.hash().is_some())
                })?
            }
        };
        if let Some(pace) = config.pace {
            self.pacing(pace.kbps)
                .map_err(|why| self.lacking(name, "packet pacing", why, "leave Mlx5Config::pace out"))?;
        }
        let relaxed_ordering = config.relaxed_ordering && !self.is_slow_relaxed;
        if config.relaxed_ordering && !relaxed_ordering {
            left_out.push(("relaxed ordering", "Haswell and Broadwell are slower with it".into()));
        }
        Ok(EnabledFeatures {
            checksum: self.checksum().is_ok(),
            tso_len_max: self.segmentation().unwrap_or(0) as usize,
            inline_len_min: self.inline_len_min(),
            multi_packet: multi_packet.is_some(),
            stamps,
            vlan_stripping: vlan_stripping.is_some(),
            compression,
            striding,
            pace: config.pace,
            relaxed_ordering,
            left_out,
        })
    }

    fn check_sizes(&self, name: &str, config: &Mlx5Config) -> Result<(), Mlx5SetupError> {
        let most = self.device.qp_wr_max.min(self.device.cqe_max);
        for (field, len) in [("rx_ring_len", config.rx_ring_len), ("tx_ring_len", config.tx_ring_len)] {
            if len > most {
                let sentence =
                    format!("{name} has rings of {most} at most: use no more for Mlx5Config::{field} than that");
                return Err(Mlx5SetupError::Config { sentence });
            }
        }
        // Each queue has two queue pairs and two completion queues.
        let queues = (self.device.qp_count_max / 2).min(self.device.cq_count_max / 2);
        if u32::from(config.queues) > queues {
            let sentence = format!("{name} has room for {queues} queues: use no more for Mlx5Config::queues than that");
            return Err(Mlx5SetupError::Config { sentence });
        }
        Ok(())
    }

    fn lacking(&self, name: &str, feature: &'static str, reason: String, instead: &'static str) -> Mlx5SetupError {
        Mlx5SetupError::Lacking {
            device: name.into(),
            firmware: self.device.firmware.clone(),
            feature,
            reason,
            instead,
        }
    }

    /// Verification of received checksums, and insertion of checksums to send.
    pub(crate) fn checksum(&self) -> Capability<()> {
        yes(
            self.device.raw_checksum && self.device.raw_packet.ip_checksum,
            "the firmware does not offer them to raw packets",
        )
    }

    pub(crate) fn segmentation(&self) -> Capability<u32> {
        yes(self.device.tso_len_max > 0, "the firmware does not offer it to raw packets")?;
        yes(self.checksum().is_ok(), "each segment needs checksums, which the firmware does not offer to raw packets")?;
        Ok(self.device.tso_len_max)
    }

    pub(crate) fn vlan_stripping(&self) -> Capability<()> {
        yes(self.device.raw_packet.cvlan_stripping, "the firmware does not offer it to raw packets")
    }

    pub(crate) fn steering(&self) -> Capability<()> {
        yes(self.device.flow_steering, "the device does not say that it can")
    }

    pub(crate) fn multi_packet(&self) -> Capability<()> {
        yes(self.mlx5.enhanced_multi_packet_wqe, "it came with ConnectX-5")
    }

    /// Devices with multi-packet WQEs need no inline headers (mlx5.md 2.6). Other devices do not
    /// report whether they need them, so they get inline headers, which are always valid.
    fn inline_len_min(&self) -> u8 {
        if self.mlx5.enhanced_multi_packet_wqe { 0 } else { INLINE_LEN }
    }

    pub(crate) fn stamping(&self, raw: bool) -> Capability<TimestampFormat> {
        yes(self.device.timestamp_mask != 0, "its completions carry none")?;
        if raw {
            return Ok(TimestampFormat::Ticks);
        }
        if self.mlx5.real_time_timestamps {
            return Ok(TimestampFormat::RealTime);
        }
        yes(self.clock_is_related, "the kernel does not relate its clock to the time of day; raw ones can be had")?;
        Ok(TimestampFormat::Wall)
    }

    pub(crate) fn striding(&self) -> Capability<StridingRequest> {
        self.work_queues()?;
        let bounds = self.mlx5.striding.ok_or("the firmware does not offer them to raw packets")?;
        let within = |wanted: u8, min: u8, max: u8| {
            // The device's values are not trusted.
            if min <= max && min <= STRIDES_LOG_MAX {
                Ok(wanted.clamp(min, max))
            } else {
                Err(format!("its bounds are 2^{min} to 2^{max}"))
            }
        };
        Ok(StridingRequest {
            stride_len_log: within(STRIDE_LEN_LOG, bounds.stride_len_log_min, bounds.stride_len_log_max)?,
            stride_count_log: within(STRIDE_COUNT_LOG, bounds.stride_count_log_min, bounds.stride_count_log_max)?,
            two_byte_shift: false,
        })
    }

    /// The same, if it suffices for the rings of `config`.
    fn striding_for(&self, config: &Mlx5Config) -> Capability<StridingRequest> {
        let striding = self.striding()?;
        let frame_len_max = config.frame_len_max.unwrap_or(FRAME_LEN_USUAL);
        let shape = RqShape::for_frames(config.rx_ring_len, frame_len_max, striding)
            .ok_or_else(|| format!("a frame of {frame_len_max} bytes is longer than its buffers"))?;
        let (wqes, cqes, len) = (shape.wqe_count, shape.cqe_count(), shape.mprq_buffer_len());
        let StridingLimits { wqes_max, cqes_max, len_max } = self.striding_limits();
        if wqes > wqes_max || cqes > cqes_max || len as u64 > len_max {
            return Err(format!(
                "{} frames of {frame_len_max} bytes need {wqes} buffers, {cqes} completions and {len} bytes, and there are {wqes_max}, \
                 {cqes_max} and {len_max} at most",
                config.rx_ring_len
            ));
        }
        Ok(striding)
    }

    fn striding_limits(&self) -> StridingLimits {
        let device = &self.device;
        StridingLimits {
            wqes_max: device.qp_wr_max.min(WQES_MAX),
            cqes_max: device.cqe_max,
            len_max: device.mr_len_max.min(MPRQ_BUFFER_LEN_MAX),
        }
    }

    /// The compression format that keeps the needed field: the stride index on a striding queue,
    /// the hash if frames are spread by it, otherwise either.
    pub(crate) fn compression(&self, striding: bool, hashed: bool) -> Capability<Compression> {
        yes(self.mlx5.compression_entries_max > 0, "the firmware compresses none")?;
        yes(
            self.mlx5.compression_entries_max <= SESSION_FRAMES_MAX,
            "its sessions are longer than those of 64 frames",
        )?;
        let formats: &[_] = match (striding, hashed) {
            (true, _) => &[Compression::ChecksumStride],
            (false, true) => &[Compression::Hash],
            (false, false) => &[Compression::Hash, Compression::Checksum],
        };
        let has = |format: &&Compression| self.mlx5.compression_formats & u32::from(format.bit()) != 0;
        formats.iter().find(has).copied().ok_or_else(|| "not in a format that says what is needed".into())
    }

    pub(crate) fn pacing(&self, kbps: u32) -> Capability<()> {
        let bounds = self.device.pacing.ok_or("the firmware does not offer it to raw packets")?;
        let (min, max) = (bounds.min_kbps, bounds.max_kbps);
        if kbps == 0 || (min..=max).contains(&kbps) {
            Ok(())
        } else {
            Err(format!("its rates are {min} to {max} kbit/s"))
        }
    }

    pub(crate) fn work_queues(&self) -> Capability<()> {
        yes(self.device.wq_count_max > 0 && self.device.rss.is_some(), "it has no work queues for raw packets")
    }

    /// Whether rules can spread over the requested queues.
    fn spreading(&self, config: &Mlx5Config) -> Capability<()> {
        self.work_queues()?;
        let rss = self.device.rss.ok_or("it has none for raw packets")?;
        yes(rss.toeplitz, "its hash is not Toeplitz")?;
        let fields = match config.hash().map(|hash| hash.by) {
            Some(RssFields::Ports) => HASH_ADDRESSES | HASH_TCP_PORTS | HASH_UDP_PORTS,
            _ => HASH_ADDRESSES,
        };
        yes(rss.fields & fields == fields, "its hash does not take these fields")?;
        let queues = u32::from(config.queues);
        let most = self.device.wq_count_max.min(rss.table_len_max);
        if queues <= most { Ok(()) } else { Err(format!("over {most} queues at most")) }
    }

    /// Entries of a table over `queues`: each queue once if they are a power of two, otherwise so
    /// many that the shares differ by little.
    pub(crate) fn table_len(&self, queues: u16) -> usize {
        let queues = usize::from(queues);
        if queues.is_power_of_two() {
            return queues;
        }
        let max = self.device.rss.map_or(1, |rss| rss.table_len_max as usize);
        // The largest power of two that the device supports.
        let max = (max + 1).next_power_of_two() / 2;
        (queues * 32).next_power_of_two().min(max)
    }

    /// The lines of `wirepath devices`: each feature with its variant, or the reason why it is
    /// absent.
    pub(crate) fn describe(&self) -> Vec<(&'static str, Result<String, String>)> {
        let plain = |can: Capability<()>| can.map(|()| String::new());
        vec![
            ("steering rules", plain(self.steering())),
            ("checksums", plain(self.checksum())),
            ("TCP segmentation", self.segmentation().map(|len| format!("of {len} bytes"))),
            ("multi-packet sends", plain(self.multi_packet())),
            ("VLAN stripping", plain(self.vlan_stripping())),
            ("time stamps", self.stamping(false).map(|kind| self.describe_stamps(kind))),
            ("compressed completions", self.compression(false, false).map(|_| self.describe_compression())),
            ("striding receive queues", self.striding().map(|_| self.describe_striding())),
            ("spreading by a hash", self.work_queues().map(|()| self.describe_spreading())),
            ("packet pacing", self.pacing(0).map(|()| self.describe_pacing())),
        ]
    }

    fn describe_stamps(&self, stamping: TimestampFormat) -> String {
        match stamping {
            TimestampFormat::RealTime => "the time of day itself".into(),
            TimestampFormat::Ticks | TimestampFormat::Wall => format!("a clock of {} kHz", self.device.core_clock_khz),
        }
    }

    fn describe_compression(&self) -> String {
        format!("sessions of up to {} frames", self.mlx5.compression_entries_max)
    }

    fn describe_striding(&self) -> String {
        self.mlx5.striding.map_or_else(String::new, |bounds| {
            let len = 1u64 << bounds.stride_len_log_min.min(63);
            let count = 1u64 << bounds.stride_count_log_min.min(63);
            format!("strides from {len} bytes, {count} or more a buffer")
        })
    }

    fn describe_spreading(&self) -> String {
        self.device.rss.map_or_else(String::new, |rss| {
            format!("over up to {} queues", rss.table_len_max.min(self.device.wq_count_max))
        })
    }

    fn describe_pacing(&self) -> String {
        self.device
            .pacing
            .map_or_else(String::new, |pacing| format!("{} to {} kbit/s", pacing.min_kbps, pacing.max_kbps))
    }
}

/// Models of Intel's family 6 whose root ports are slow with relaxed ordering: Haswell and
/// Broadwell. Linux disables it in the device there (`quirk_relaxedordering_disable` of
/// drivers/pci/quirks.c) if it sees the root port; a guest does not see it.
const SLOW_RELAXED_MODELS: [u32; 8] = [0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47, 0x4f, 0x56];

/// Whether `/proc/cpuinfo` shows such a processor.
fn is_slow_relaxed(processor: &str) -> bool {
    let field = |name: &str| {
        let is_named = |line: &&str| line.split(':').next().is_some_and(|field| field.trim() == name);
        processor.lines().find(is_named)?.split(':').nth(1).map(str::trim)
    };
    let model = field("model").and_then(|model| model.parse().ok());
    field("vendor_id") == Some("GenuineIntel")
        && field("cpu family") == Some("6")
        && model.is_some_and(|model| SLOW_RELAXED_MODELS.contains(&model))
}

/// Selects features one after the other.
struct Pick<'a> {
    capabilities: &'a DeviceCapabilities,
    name: &'a str,
    left_out: &'a mut Vec<(&'static str, String)>,
}

impl Pick<'_> {
    fn feature<T>(
        &mut self,
        wanted: Feature,
        feature: &'static str,
        can: impl FnOnce() -> Capability<T>,
    ) -> Result<Option<T>, Mlx5SetupError> {
        if !wanted.is_wanted() {
            return Ok(None);
        }
        match (can(), wanted) {
            (Ok(there), _) => Ok(Some(there)),
            (Err(why), Feature::Required) => {
                Err(self.capabilities.lacking(self.name, feature, why, "use Feature::IfSupported to go without"))
            }
            (Err(why), _) => {
                self.left_out.push((feature, why));
                Ok(None)
            }
        }
    }
}

fn yes(can: bool, else_why: &str) -> Capability<()> {
    if can { Ok(()) } else { Err(else_why.into()) }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use rdma_core_sys::verbs::{Pacing, RawPacketCaps, Rss, Striding};

    use super::*;
    use crate::device::mlx5::config::{RssConfig, RxDistribution};

    /// The capabilities of a ConnectX-5 (mlx5.md 1.4).
    pub(crate) fn connectx5() -> DeviceCapabilities {
        DeviceCapabilities {
            device: DeviceAttributes {
                firmware: "16.35.2000".into(),
                node_guid: 1,
                vendor_id: 0x02c9,
                part_id: 4119,
                hardware_version: 0,
                port_count: 1,
                qp_count_max: 131_072,
                qp_wr_max: 32_768,
                sge_max: 30,
                cq_count_max: 65_536,
                cqe_max: 4_194_303,
                mr_count_max: 16_777_216,
                mr_len_max: u64::MAX,
                dest_rd_atomic_max: 16,
                rd_atomic_max: 16,
                wq_count_max: 65_536,
                flow_steering: true,
                raw_checksum: true,
                raw_packet: RawPacketCaps { cvlan_stripping: true, ip_checksum: true, ..RawPacketCaps::default() },
                tso_len_max: 262_144,
                rss: Some(Rss { table_count_max: 65_536, table_len_max: 512, fields: 0x8000_00ff, toeplitz: true }),
                pacing: Some(Pacing { min_kbps: 1000, max_kbps: 100_000_000 }),
                timestamp_mask: u64::MAX,
                core_clock_khz: 156_250,
                cq_moderation_max: (65_535, 4095),
            },
            mlx5: Mlx5Attributes {
                cqe_version_1: true,
                multi_packet_wqe: true,
                enhanced_multi_packet_wqe: true,
                compressed_cqe_128: false,
                padded_cqe_128: false,
                real_time_timestamps: false,
                compression_entries_max: 64,
                compression_formats: 7,
                striding: Some(Striding {
                    stride_len_log_min: 6,
                    stride_len_log_max: 13,
                    stride_count_log_min: 9,
                    stride_count_log_max: 16,
                }),
                software_parsing: 0,
                tunnel_offloads: 0,
                dynamic_uar_count_max: 0,
                clock_info_age_ns_max: 0,
                lag_port_count: 0,
            },
            clock_is_related: true,
            is_slow_relaxed: false,
        }
    }

    /// Only capabilities that every device has.
    fn bare() -> DeviceCapabilities {
        let full = connectx5();
        DeviceCapabilities {
            device: DeviceAttributes {
                raw_checksum: false,
                raw_packet: RawPacketCaps::default(),
                tso_len_max: 0,
                rss: None,
                pacing: None,
                timestamp_mask: 0,
                wq_count_max: 0,
                flow_steering: false,
                ..full.device
            },
            mlx5: Mlx5Attributes {
                enhanced_multi_packet_wqe: false,
                compression_entries_max: 0,
                striding: None,
                ..full.mlx5
            },
            clock_is_related: false,
            is_slow_relaxed: true,
        }
    }

    fn config() -> Mlx5Config {
        Mlx5Config::new("mlx5_0")
    }

    fn all(feature: Feature) -> Mlx5Config {
        Mlx5Config {
            timestamps: feature,
            vlan_stripping: feature,
            striding: feature,
            compression: feature,
            multi_packet_send: feature,
            ..config()
        }
    }

    fn refused(capabilities: &DeviceCapabilities, config: &Mlx5Config, says: &str) {
        let said = capabilities.choose("mlx5_0", config).unwrap_err().to_string();
        assert!(said.contains(says) && said.contains("mlx5_0"), "{said}");
    }

    #[test]
    fn what_is_demanded_and_not_there_is_refused_with_firmware_and_reason() {
        let on = Feature::Required;
        let bare = bare();
        refused(&bare, &Mlx5Config { timestamps: on, ..config() }, "has no time stamps (its completions carry none)");
        refused(&bare, &Mlx5Config { vlan_stripping: on, ..config() }, "firmware 16.35.2000 has no VLAN stripping");
        refused(&bare, &Mlx5Config { striding: on, ..config() }, "no striding receive queues (it has no work queues");
        refused(
            &bare,
            &Mlx5Config { compression: on, ..config() },
            "no compressed completions (the firmware compresses none)",
        );
        refused(&bare, &Mlx5Config { multi_packet_send: on, ..config() }, "no multi-packet sends");
        refused(
            &bare,
            &Mlx5Config { rx_distribution: RxDistribution::Rss(RssConfig::default()), ..config() },
            "no spreading by a hash",
        );
        let pace = |kbps| Mlx5Config { pace: Some(Pace { kbps, ..Pace::default() }), ..config() };
        refused(&bare, &pace(5000), "no packet pacing");
        refused(&connectx5(), &pace(999), "its rates are 1000 to 100000000 kbit/s");
    }

    #[test]
    fn what_is_asked_for_and_not_there_is_left_out_with_the_reason() {
        let enabled = bare().choose("mlx5_0", &all(Feature::IfSupported)).unwrap();
        assert_eq!((enabled.stamps, enabled.vlan_stripping, enabled.multi_packet), (None, false, false));
        assert_eq!((enabled.striding, enabled.compression), (None, None));
        assert_eq!((enabled.left_out.len(), enabled.relaxed_ordering), (6, false));
        assert!((!enabled.checksum && enabled.tso_len_max == 0) && enabled.inline_len_min == 18);
    }

    #[test]
    fn relaxed_ordering_is_on_but_where_the_processor_is_the_slower_for_it() {
        let enabled = |capabilities: DeviceCapabilities, relaxed_ordering| {
            capabilities.choose("mlx5_0", &Mlx5Config { relaxed_ordering, ..config() }).unwrap().relaxed_ordering
        };
        assert!(enabled(connectx5(), true) && !enabled(connectx5(), false) && !enabled(bare(), true));
        let intel = |model: u32| {
            format!(
                "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\nmodel name\t: Xeon\n"
            )
        };
        assert!(is_slow_relaxed(&intel(0x3f)) && is_slow_relaxed(&intel(0x4f)));
        assert!(
            !is_slow_relaxed(&intel(0x55)) && !is_slow_relaxed(&intel(0x3f).replace("GenuineIntel", "AuthenticAMD"))
        );
        assert!(!is_slow_relaxed("processor\t: 0\nBogoMIPS\t: 50.00\n") && !is_slow_relaxed(""));
    }

    #[test]
    fn segmentation_without_checksums_is_none() {
        let mut capabilities = connectx5();
        capabilities.device.raw_checksum = false;
        let enabled = capabilities.choose("mlx5_0", &config()).unwrap();
        assert!(!enabled.checksum && capabilities.device.tso_len_max > 0);
        assert_eq!(enabled.tso_len_max, 0);
    }

    #[test]
    fn what_is_there_and_not_asked_for_is_not_used() {
        let enabled = connectx5().choose("mlx5_0", &all(Feature::Off)).unwrap();
        assert_eq!((enabled.stamps, enabled.vlan_stripping, enabled.multi_packet), (None, false, false));
        assert_eq!((enabled.striding, enabled.compression, enabled.left_out.len()), (None, None, 0));
        assert!(enabled.checksum && enabled.inline_len_min == 0);
    }

    #[test]
    fn compression_makes_way_for_time_stamps_unless_it_is_demanded() {
        let enabled = connectx5().choose("mlx5_0", &all(Feature::IfSupported)).unwrap();
        assert_eq!((enabled.stamps, enabled.compression), (Some(TimestampFormat::Wall), None));
        assert!(enabled.left_out.iter().any(|(feature, _)| *feature == "compressed completions"));
        let demanded = Mlx5Config { compression: Feature::Required, ..all(Feature::IfSupported) };
        let enabled = connectx5().choose("mlx5_0", &demanded).unwrap();
        assert_eq!(enabled.compression, Some(Compression::ChecksumStride));
    }

    #[test]
    fn stamps_are_what_the_clock_can() {
        let mut capabilities = connectx5();
        capabilities.clock_is_related = false;
        assert!(capabilities.stamping(false).unwrap_err().contains("raw ones can be had"));
        assert_eq!(capabilities.stamping(true), Ok(TimestampFormat::Ticks));
        capabilities.mlx5.real_time_timestamps = true;
        assert_eq!(capabilities.stamping(false), Ok(TimestampFormat::RealTime));
    }

    #[test]
    fn format_of_compression_keeps_what_is_needed() {
        let mut capabilities = connectx5();
        assert_eq!(capabilities.compression(true, false), Ok(Compression::ChecksumStride));
        assert_eq!(capabilities.compression(false, true), Ok(Compression::Hash));
        capabilities.mlx5.compression_formats = 2;
        assert_eq!(capabilities.compression(false, false), Ok(Compression::Checksum));
        assert!(capabilities.compression(false, true).is_err() && capabilities.compression(true, true).is_err());
    }

    #[test]
    fn strides_stay_within_the_bounds_that_the_device_tells() {
        let mut capabilities = connectx5();
        let shape = |capabilities: &DeviceCapabilities| {
            capabilities.striding().map(|shape| (shape.stride_len_log, shape.stride_count_log))
        };
        assert_eq!(shape(&capabilities), Ok((8, 9)));
        let bounds = |len_min, len_max, count_min, count_max| {
            Some(Striding {
                stride_len_log_min: len_min,
                stride_len_log_max: len_max,
                stride_count_log_min: count_min,
                stride_count_log_max: count_max,
            })
        };
        capabilities.mlx5.striding = bounds(6, 7, 11, 16);
        assert_eq!(shape(&capabilities), Ok((7, 11)));
        capabilities.mlx5.striding = bounds(6, 13, 0, 255);
        assert_eq!(shape(&capabilities), Ok((8, 9)));
        for nonsense in [bounds(9, 6, 9, 16), bounds(6, 13, 16, 255), bounds(16, 31, 9, 16)] {
            capabilities.mlx5.striding = nonsense;
            assert!(shape(&capabilities).is_err());
        }
    }

    #[test]
    fn striding_ring_that_the_device_has_no_room_for_is_not_asked_for() {
        let on = Mlx5Config { striding: Feature::Required, frame_len_max: Some(1518), ..config() };
        let check = |change: fn(&mut DeviceCapabilities), says: &str| {
            let mut capabilities = connectx5();
            capabilities.choose("mlx5_0", &on).unwrap();
            change(&mut capabilities);
            refused(&capabilities, &on, says);
            let config = Mlx5Config { striding: Feature::IfSupported, ..on.clone() };
            let enabled = capabilities.choose("mlx5_0", &config).unwrap();
            assert_eq!(enabled.striding, None);
            assert!(enabled.left_out[0].1.contains(says), "{:?}", enabled.left_out);
        };
        // 32 WQEs of 512 strides of 256 bytes for 2048 frames of 6 strides.
        check(
            |capabilities| capabilities.device.cqe_max = 16_383,
            "2048 frames of 1518 bytes need 32 buffers, 16384 completions",
        );
        check(|capabilities| capabilities.device.mr_len_max = (4 << 20) - 1, "4194304 bytes, and there are");
        check(
            |capabilities| {
                capabilities.mlx5.striding = capabilities.mlx5.striding.map(|bounds| Striding {
                    stride_len_log_max: 6,
                    stride_count_log_min: 3,
                    stride_count_log_max: 4,
                    ..bounds
                });
            },
            "a frame of 1518 bytes is longer than its buffers",
        );
    }

    #[test]
    fn rings_and_queues_are_no_more_than_the_device_has() {
        let mut capabilities = connectx5();
        capabilities.device.qp_wr_max = 512;
        refused(&capabilities, &Mlx5Config { tx_ring_len: 512, ..config() }, "rx_ring_len");
        capabilities = connectx5();
        capabilities.device.qp_count_max = 9;
        refused(&capabilities, &Mlx5Config { queues: 5, ..config() }, "room for 4 queues");
    }

    #[test]
    fn table_gives_each_queue_nearly_the_same_share() {
        let mut capabilities = connectx5();
        let lens: Vec<_> = [1, 2, 3, 8, 12, 20].into_iter().map(|queues| capabilities.table_len(queues)).collect();
        assert_eq!(lens, [1, 2, 128, 8, 512, 512]);
        capabilities.device.rss = capabilities.device.rss.map(|rss| Rss { table_len_max: 100, ..rss });
        assert_eq!(capabilities.table_len(3), 64);
    }

    #[test]
    fn description_says_of_each_thing_how_or_why_not() {
        assert!(connectx5().describe().iter().all(|(_, can)| can.is_ok()));
        assert!(bare().describe().iter().all(|(_, can)| can.is_err()));
    }
}
