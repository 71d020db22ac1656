//! How time is divided into fixed windows: spans of equal length, or months and years in UTC.

const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;
const DAY_MS: u64 = DAY_US / 1000;

/// 1970-01-05 was the first Monday.
const FIRST_MONDAY_US: u64 = 4 * DAY_US;

/// A window of the calendar, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Calendar {
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday.
    Week,
    /// From the first to the last day of a month.
    Month,
    /// From January to December.
    Year,
}

impl Calendar {
    /// Every window of the calendar, the shortest first.
    pub const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Year];

    /// The word in limits.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// Finds a window by its word, in any case.
    #[must_use]
    pub fn from_name(word: &[u8]) -> Option<Self> {
        let named = |calendar: &Self| calendar.name().as_bytes().eq_ignore_ascii_case(word);
        Self::ALL.into_iter().find(named)
    }

    /// The length of the shortest such window.
    #[must_use]
    pub const fn shortest_ms(self) -> u64 {
        match self {
            Self::Day => DAY_MS,
            Self::Week => 7 * DAY_MS,
            Self::Month => 28 * DAY_MS,
            Self::Year => 365 * DAY_MS,
        }
    }

    /// The length of the longest such window.
    #[must_use]
    pub const fn longest_ms(self) -> u64 {
        match self {
            Self::Day => DAY_MS,
            Self::Week => 7 * DAY_MS,
            Self::Month => 31 * DAY_MS,
            Self::Year => 366 * DAY_MS,
        }
    }

    pub(crate) const fn longest_us(self) -> u64 {
        self.longest_ms() * 1000
    }

    /// Its windows, with every boundary moved by `offset_us`.
    pub(crate) const fn schedule(self, offset_us: i64) -> Schedule {
        match self {
            Self::Day => Schedule::spans(DAY_US, offset_us),
            Self::Week => Schedule::spans(7 * DAY_US, FIRST_MONDAY_US as i64 + offset_us),
            Self::Month => Schedule::Months { offset_us },
            Self::Year => Schedule::Years { offset_us },
        }
    }
}

/// Where windows start and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// Windows of `span_us`. One of them starts `phase_us` after the epoch, which is less than a span.
    Spans { span_us: u64, phase_us: u64 },
    /// The months, each boundary moved by `offset_us`.
    Months { offset_us: i64 },
    /// The years, each boundary moved by `offset_us`.
    Years { offset_us: i64 },
}

/// One window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Negative if the window started before the epoch.
    pub(crate) start_us: i64,
    pub(crate) end_us: u64,
}

impl Schedule {
    /// Windows of `span_us`, with every boundary moved by `offset_us` from the multiples of the span.
    #[inline]
    pub(crate) const fn spans(span_us: u64, offset_us: i64) -> Self {
        let phase_us = match offset_us {
            // The usual case, without a division.
            0 => 0,
            offset_us => offset_us.rem_euclid(span_us as i64) as u64,
        };
        Self::Spans { span_us, phase_us }
    }

    /// The end of the window that contains `now_us`.
    #[inline]
    pub(crate) const fn end_after(self, now_us: u64) -> u64 {
        match self {
            Self::Spans { span_us, phase_us } => {
                now_us + span_us - (now_us + span_us - phase_us) % span_us
            }
            _ => self.around(now_us).end_us,
        }
    }

    /// The window that contains `now_us`.
    pub(crate) const fn around(self, now_us: u64) -> Bounds {
        let (start_us, end_us) = match self {
            Self::Spans { span_us, .. } => {
                let end_us = self.end_after(now_us) as i64;
                (end_us - span_us as i64, end_us)
            }
            Self::Months { offset_us } => {
                let (year, month) = year_and_month(now_us as i64 - offset_us);
                let (next_year, next) = match month {
                    12 => (year + 1, 1),
                    month => (year, month + 1),
                };
                (
                    first_of(year, month) + offset_us,
                    first_of(next_year, next) + offset_us,
                )
            }
            Self::Years { offset_us } => {
                let (year, _) = year_and_month(now_us as i64 - offset_us);
                (
                    first_of(year, 1) + offset_us,
                    first_of(year + 1, 1) + offset_us,
                )
            }
        };
        Bounds {
            start_us,
            // It ends after `now_us`, so it is not negative.
            end_us: end_us as u64,
        }
    }

    /// A number that windows of one length share: the span, or one that no span has, because spans are whole milliseconds.
    pub(crate) const fn span_us(self) -> u64 {
        match self {
            Self::Spans { span_us, .. } => span_us,
            Self::Months { .. } => Calendar::Month.longest_us() + 1,
            Self::Years { .. } => Calendar::Year.longest_us() + 1,
        }
    }
}

/// The calendar repeats every 400 years. Years start in March here, so that a leap day is the last day of its year.
const ERA_DAYS: i64 = 146_097;
const ERA_YEARS: i64 = 400;

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Year and month (1 to 12) of a time, in the Gregorian calendar.
const fn year_and_month(us: i64) -> (i64, i64) {
    let days = us.div_euclid(DAY_US as i64) + EPOCH_DAYS;
    let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    // A leap day every 4 years, but not every 100, except every 400.
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - days_before_year(year);
    // Months from March on have 31, 30, 31, 30, 31 days, twice and a bit.
    let from_march = (5 * day_of_year + 2) / 153;
    let year = era * ERA_YEARS + year;
    match from_march {
        0..=9 => (year, from_march + 3),
        _ => (year + 1, from_march - 9),
    }
}

/// The time at which a month starts.
const fn first_of(year: i64, month: i64) -> i64 {
    let (year, from_march) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let (era, year) = (year.div_euclid(ERA_YEARS), year.rem_euclid(ERA_YEARS));
    let day = days_before_year(year) + (153 * from_march + 2) / 5;
    (era * ERA_DAYS + day - EPOCH_DAYS) * DAY_US as i64
}

/// Days from the start of an era to the start of one of its years.
const fn days_before_year(year: i64) -> i64 {
    365 * year + year / 4 - year / 100
}
