//! Refusals of the core as one sentence for a person or a model.

use abide_core::timer::{self, Status};
use abide_core::{Answer, Closing, Refusal, TimerId};

pub fn refusal_sentence(refusal: &Refusal) -> String {
    match refusal {
        Refusal::SessionNotFound(id) => format!("Session '{id}' not found"),
        Refusal::SessionEnded(id) => {
            format!("Session '{id}' has ended; only a running one can do this")
        }
        Refusal::QuestionNotFound(id) => {
            format!("Question '{id}' not found; `abide answer` lists the open ones")
        }
        Refusal::QuestionClosed(id, Closing::Answered(answer)) => format!(
            "Question '{id}' was already answered: {}",
            match answer {
                Answer::Yes => "yes",
                Answer::No => "no",
                Answer::Refused => "yes, but the rules or the settings refuse its command by now, so it was not started",
            }
        ),
        Refusal::QuestionClosed(id, Closing::Withdrawn) => {
            format!("Question '{id}' was withdrawn: the command it is about has ended or gone on since")
        }
        Refusal::QuestionClosed(id, Closing::Expired) => {
            format!("Question '{id}' has expired: nobody answered it within a day")
        }
        Refusal::KeyReused(key) => format!(
            "`idempotency_key` '{}' was used for another command already, or with other arguments; use a new one",
            key.0.strip_prefix("given:").unwrap_or(&key.0)
        ),
        Refusal::Timer(refusal) => timer_refusal_sentence(refusal),
        Refusal::NotRecorded => {
            "storage_full: it could not be recorded, so nothing was done; free some space on the disk and \
             try again, or see `abide doctor` where there is enough"
                .into()
        }
        Refusal::DatabaseAway(sentence) | Refusal::ChangedElsewhere(sentence) => {
            format!("{sentence}; nothing was done, so try again later")
        }
        Refusal::OutcomeUnknown(sentence) => format!(
            "{sentence}. It is not known whether this was recorded: repeat the call with the same `idempotency_key`, \
             or look at the list before you repeat it without one"
        ),
        Refusal::TooMany(sentence) => sentence.clone(),
    }
}

pub fn timer_refusal_sentence(refusal: &timer::Refusal) -> String {
    match refusal {
        timer::Refusal::NotFound { timer, known, more } => {
            timer_not_found(&timer.to_string(), known, *more, &[])
        }
        timer::Refusal::NotAllowed {
            timer,
            attempt,
            status,
        } => {
            let next = match status {
                Status::Paused { .. } if *attempt != "resume" => "; resume it first",
                _ => "",
            };
            format!(
                "Timer '{timer}' is {}: cannot {attempt} it{next}",
                status.as_str()
            )
        }
        timer::Refusal::KeyReused(key) => format!(
            "`idempotency_key` '{}' was used for another timer already; use a new one",
            key.0.strip_prefix("given:").unwrap_or(&key.0)
        ),
    }
}

/// The sentence for a timer id that is not known, with the ids that are.
pub fn timer_not_found(given: &str, known: &[TimerId], more: usize, ended: &[TimerId]) -> String {
    let list = |ids: &[TimerId]| {
        let ids: Vec<String> = ids.iter().map(TimerId::to_string).collect();
        ids.join(", ")
    };
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let there = match (known.is_empty(), ended.is_empty()) {
        (true, true) => "there are no timers".into(),
        (true, false) => format!("the timers that exist have ended: {}", list(ended)),
        (false, true) => format!("the timers that exist are {}{more}", list(known)),
        (false, false) => format!(
            "the timers that exist are {}{more}, and of those that have ended {}",
            list(known),
            list(ended)
        ),
    };
    format!("Timer '{given}' not found; {there}")
}
