-- Appends the messages of one lane, and stops at the first that is refused, so that a stream holds a prefix of the lane.
-- KEYS: the stream of each message. ARGV: for each message, how many arguments its XADD has, and these.
-- Returns the ids, and the error of the one that was refused as the last.
local answers = {}
local at = 1
for place, stream in ipairs(KEYS) do
  local count = tonumber(ARGV[at])
  local answer = redis.pcall('XADD', stream, unpack(ARGV, at + 1, at + count))
  answers[place] = answer
  if type(answer) == 'table' and answer.err then
    break
  end
  at = at + 1 + count
end
return answers
