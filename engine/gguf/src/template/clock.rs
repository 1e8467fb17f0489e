//! Dates for templates that print one.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A moment in UTC as `strftime` writes it, with English names. Unknown directives stay as they are.
pub(super) fn strftime(format: &str, moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    let (year, month, day, day_of_year) = date(days);
    let weekday = DAYS[((days + 4) % 7) as usize];
    let month_name = MONTHS[month];
    let month = month + 1;
    let hour12 = (hour + 11) % 12 + 1;
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next();
        // `%-d` is `%d` without the leading zero.
        let bare = directive == Some('-');
        if bare {
            directive = chars.next();
        }
        let text = match directive {
            Some('Y') => format!("{year}"),
            Some('y') => format!("{:02}", year % 100),
            Some('m') => format!("{month:02}"),
            Some('B') => month_name.to_owned(),
            Some('b' | 'h') => month_name[..3].to_owned(),
            Some('d') => format!("{day:02}"),
            Some('e') => format!("{day:2}"),
            Some('j') => format!("{day_of_year:03}"),
            Some('A') => weekday.to_owned(),
            Some('a') => weekday[..3].to_owned(),
            Some('H') => format!("{hour:02}"),
            Some('I') => format!("{hour12:02}"),
            Some('M') => format!("{minute:02}"),
            Some('S') => format!("{second:02}"),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('Z') => "UTC".to_owned(),
            Some('z') => "+0000".to_owned(),
            Some('%') => "%".to_owned(),
            other => format!("%{}{}", if bare { "-" } else { "" }, other.map(String::from).unwrap_or_default()),
        };
        out.push_str(if bare { text.trim_start_matches('0') } else { &text });
        if bare && !text.is_empty() && text.bytes().all(|b| b == b'0') {
            out.push('0');
        }
    }
    out
}

/// Year, month from 0, day from 1 and day of the year from 1 of a day counted from 1970-01-01 (proleptic Gregorian).
fn date(mut days: u64) -> (u64, usize, u64, u64) {
    // A cycle of 400 years has 146,097 days, so far dates cost no more than near ones.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    let leap = |y: u64| y.is_multiple_of(4) && !y.is_multiple_of(100) || y.is_multiple_of(400);
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let day_of_year = days + 1;
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1, day_of_year)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates() {
        let at = |s: u64, f: &str| strftime(f, UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0, "%A %d %B %Y %H:%M:%S"), "Thursday 01 January 1970 00:00:00");
        assert_eq!(at(951_782_400, "%F %j %a"), "2000-02-29 060 Tue");
        assert_eq!(at(1_767_225_599, "%-d %b %y %I %p %T %%"), "31 Dec 25 11 PM 23:59:59 %");
        assert_eq!(at(4_107_542_400, "%F"), "2100-03-01");
        assert_eq!(at(0, "%-H %Q %-"), "0 %Q %-");
    }
}
