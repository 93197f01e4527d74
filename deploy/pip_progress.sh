#!/usr/bin/env bash
# pip_progress.sh PACKAGES: what `make install` shows of what pip prints, which is read from the
# standard input. On a terminal: one line with a bar of how many packages are there, and for how long
# it goes on. Elsewhere: the large packages, and when all are there.
set -u

total=$1
finished=0
doing="looking for packages"
begun_s=$SECONDS
rest=""
width=24

draw() {
  local filled=$((finished * width / (total > 0 ? total : 1)))
  local bar
  printf -v bar '%*s' "$filled" ""
  printf '\r\e[K[%-*s] %d of %d packages, %d s: %s' \
    "$width" "${bar// /#}" "$finished" "$total" $((SECONDS - begun_s)) "${doing:0:50}"
}

look_at() {
  local large='^ *((Downloading|Using cached) .* MB\))'
  case $1 in
    "Collecting "* | "Requirement already satisfied: "*)
      finished=$((finished < total ? finished + 1 : total))
      doing=${1#*ing }
      doing=${doing%% *}
      ;;
    "Ignoring "*": markers "*)
      total=$((total > finished ? total - 1 : total))
      ;;
    "Installing collected packages"*)
      finished=$total
      doing="installing them"
      [[ -t 1 ]] || echo "Installing collected packages"
      ;;
  esac
  if [[ $1 =~ $large ]]; then
    doing=${BASH_REMATCH[1]}
    [[ -t 1 ]] || echo "  $doing"
  fi
}

while true; do
  if IFS= read -r -t 1 line; then
    look_at "$rest$line"
    rest=""
  elif (($? > 128)); then
    rest+=$line # nothing, or the beginning of a line, came within a second
  else
    break
  fi
  if [[ -t 1 ]]; then
    draw
  fi
done
if [[ -t 1 ]]; then
  printf '\r\e[K'
fi
