//! Search in the logs of other machines. They are searched in the order of their names, each with its own route, and
//! only those that the page still has room for.

use std::sync::Arc;

use abide_api::{Match, MatchPage};
use abide_core::Agent;
use abide_core::fleet::{MachineId, Standing};
use abide_engine::Handle;
use abide_engine::machine_link::{CannotCall, OtherMachines};
use axum::body::Bytes;
use axum::http::{self, Method, Response};
use futures_util::future::join_all;
use http_body_util::Full;
use serde_json::Value;

use super::forward;
use crate::http::query_text::encoded;

/// Machines that are searched at once.
const AT_ONCE: usize = 16;

/// Place at which a search goes on: a machine, and the cursor of that machine. Without a cursor it is searched from
/// the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceElsewhere {
    machine: String,
    cursor: Option<String>,
}

impl PlaceElsewhere {
    /// Reads the text of a cursor. `None`: it names no machine.
    pub fn parse(text: &str) -> Option<Self> {
        let (machine, cursor) = text.split_once('/')?;
        Some(PlaceElsewhere {
            machine: machine.to_owned(),
            cursor: Some(cursor.to_owned()).filter(|cursor| !cursor.is_empty()),
        })
    }

    /// True if the fleet has the machine.
    pub fn is_known(&self, handle: &Handle) -> bool {
        let machines = handle.other_machines();
        machines.is_some_and(|machines| machines.state().named(&self.machine).is_some())
    }

    /// Text of the cursor.
    pub fn text(&self) -> String {
        let cursor = self.cursor.as_deref().unwrap_or_default();
        format!("{}/{cursor}", self.machine)
    }
}

/// Search in the logs of other machines.
pub struct SearchElsewhere<'a> {
    /// Regular expression.
    pub pattern: &'a str,
    /// Agent whose sessions are searched; `None` is a person.
    pub agent: Option<&'a Agent>,
    /// Place of the cursor; `None`: all machines are searched.
    pub from: Option<PlaceElsewhere>,
}

impl SearchElsewhere<'_> {
    /// Adds lines of other machines to a page, up to `most` lines.
    pub async fn extend(&self, handle: &Handle, page: &mut MatchPage, most: usize) {
        let Some(machines) = handle.other_machines() else {
            return;
        };
        let places = self.places(machines);
        for some in places.chunks(AT_ONCE) {
            let room = most.saturating_sub(page.matches.len());
            if room == 0 {
                let first = some.first().map(|(_, place)| place.text());
                (page.next, page.truncated) = (first, true);
                return;
            }
            let asked = (some.iter()).map(|(id, place)| self.found(machines, *id, place, room));
            let found = join_all(asked).await;
            for ((_, place), found) in some.iter().zip(found) {
                match found {
                    Ok(found) => add(page, place, found, most),
                    Err(why) => {
                        let name = place.machine.clone();
                        page.unreachable.insert(name, why.to_string());
                    }
                }
                if page.next.is_some() {
                    return;
                }
            }
        }
    }

    /// Machines that are still to be searched.
    fn places(&self, machines: &OtherMachines) -> Vec<(MachineId, PlaceElsewhere)> {
        let state = machines.state();
        let others = state.machines.values().filter(|machine| {
            Some(machine.row.id) != state.own && machine.row.standing == Standing::Member
        });
        let mut names: Vec<_> = others
            .map(|machine| (machine.name.clone(), machine.row.id))
            .collect();
        names.sort();
        let from = self.from.as_ref();
        names.retain(|(name, _)| from.is_none_or(|from| *name >= from.machine));
        let place = |(machine, id): (String, MachineId)| {
            let cursor = from.filter(|from| from.machine == machine);
            let cursor = cursor.and_then(|from| from.cursor.clone());
            (id, PlaceElsewhere { machine, cursor })
        };
        names.into_iter().map(place).collect()
    }

    async fn found(
        &self,
        machines: &Arc<OtherMachines>,
        machine: MachineId,
        place: &PlaceElsewhere,
        most: usize,
    ) -> Result<MatchPage, NotSearched> {
        let mut path = format!("/v1/search?limit={most}&pattern={}", encoded(self.pattern));
        if let Some(cursor) = &place.cursor {
            path.push_str(&format!("&after={}", encoded(cursor)));
        }
        let request = forward::request(Method::GET, &path, self.agent, true);
        let request = request.body(Full::new(Bytes::new()));
        let (known, response) = forward::send_whole(machines, machine, request?).await?;
        page_of(known.name, &response)
    }
}

/// Reason why a machine was not searched.
#[derive(Debug, thiserror::Error)]
enum NotSearched {
    #[error(transparent)]
    Call(#[from] CannotCall),
    #[error("the search cannot be sent: {0}")]
    Request(#[from] http::Error),
    #[error("machine {0} has sent no result: {1}")]
    Result(String, serde_json::Error),
    #[error("{0}")]
    Refused(String),
}

fn page_of(machine: String, response: &Response<Bytes>) -> Result<MatchPage, NotSearched> {
    if response.status().is_success() {
        let page = serde_json::from_slice(response.body());
        return page.map_err(|fault| NotSearched::Result(machine, fault));
    }
    let problem: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    let status = response.status();
    let detail = problem["detail"].as_str().map(str::to_owned);
    let detail = detail.unwrap_or_else(|| format!("machine {machine} has answered {status}"));
    Err(NotSearched::Refused(detail))
}

/// Adds the lines that one machine has found. If they do not all fit, the search goes on behind the last one.
fn add(page: &mut MatchPage, place: &PlaceElsewhere, found: MatchPage, most: usize) {
    let room = most.saturating_sub(page.matches.len());
    let left_out = found.matches.len() > room;
    let lines = found.matches.into_iter().take(room).map(|line| Match {
        machine: Some(place.machine.clone()),
        ..line
    });
    page.matches.extend(lines);
    page.unreadable.extend(found.unreadable);
    let last = page.matches.last();
    let last = last.filter(|line| line.machine.as_ref() == Some(&place.machine));
    let cursor = match (left_out, last) {
        (true, Some(last)) => Some(format!("{}:{}", last.session_id.0, last.line)),
        (true, None) => place.cursor.clone(),
        (false, _) => found.next.clone(),
    };
    if left_out || found.next.is_some() {
        let next = PlaceElsewhere {
            machine: place.machine.clone(),
            cursor,
        };
        (page.next, page.truncated) = (Some(next.text()), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_api::Id;
    use abide_core::SessionId;

    fn line(number: u64) -> Match {
        Match {
            session_id: Id(SessionId::from_bits(1)),
            command: "make".into(),
            line: number,
            text: "x".into(),
            machine: None,
        }
    }

    fn page(lines: &[u64], next: Option<&str>) -> MatchPage {
        MatchPage {
            matches: lines.iter().copied().map(line).collect(),
            truncated: next.is_some(),
            next: next.map(str::to_owned),
            ..MatchPage::default()
        }
    }

    #[test]
    fn cursor_names_the_machine_and_its_own_cursor() {
        for text in ["build/session_a:3", "build/"] {
            let place = PlaceElsewhere::parse(text).unwrap();
            assert_eq!(place.text(), text);
        }
        assert_eq!(PlaceElsewhere::parse("session_a:3"), None);
    }

    #[test]
    fn lines_that_do_not_fit_are_found_behind_the_last_one_that_does() {
        let place = PlaceElsewhere::parse("build/").unwrap();
        let mut whole = page(&[1, 2], None);
        add(&mut whole, &place, page(&[7, 8, 9], None), 4);
        let numbers: Vec<u64> = whole.matches.iter().map(|line| line.line).collect();
        assert_eq!(numbers, [1, 2, 7, 8]);
        let session = SessionId::from_bits(1);
        assert_eq!(whole.next, Some(format!("build/{session}:8")));
        let mut full = page(&[1, 2], None);
        add(&mut full, &place, page(&[7], None), 2);
        assert_eq!(full.next.as_deref(), Some("build/"));
    }

    #[test]
    fn cursor_of_the_other_machine_is_kept_and_without_one_the_page_is_complete() {
        let place = PlaceElsewhere::parse("build/").unwrap();
        let mut whole = page(&[], None);
        add(&mut whole, &place, page(&[], Some("session_b:4")), 10);
        assert_eq!(whole.next.as_deref(), Some("build/session_b:4"));
        let mut whole = page(&[], None);
        add(&mut whole, &place, page(&[3], None), 10);
        assert_eq!((whole.next, whole.truncated), (None, false));
    }
}
